import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * The job of the experiment "pull-the-plug" in Flink's own language: readings at a pace, the running sum of each key, rows in a file.
 *
 * FlinkPlug FOLDER KEYS NOTES LOAD_MS ROWS_A_SECOND PARALLELISM
 *
 * Every key comes once within LOAD_MS, then ROWS_A_SECOND; NOTES characters are kept with a key. Each life of the sink writes
 * FOLDER/out-ATTEMPT.csv, so that whoever reads can tell what came before a failure from what came after it.
 */
public class FlinkPlug {
    /** What is kept of a key. */
    public static class Memory {
        public String notes;
        public long total;
    }

    /** A number of the sequence as a reading, held back until it is due; after a failure all that is overdue passes at once. */
    static final class Paced implements MapFunction<Long, Tuple3<Long, Integer, Integer>> {
        private final long beginMs, keys, loadMs, rate;
        Paced(long beginMs, long keys, long loadMs, long rate) {
            this.beginMs = beginMs; this.keys = keys; this.loadMs = loadMs; this.rate = rate;
        }
        @Override public Tuple3<Long, Integer, Integer> map(Long number) {
            long later = number - keys;
            long at = later < 0 ? number * loadMs / keys : loadMs + later * 1_000 / rate;
            for (long early; (early = beginMs + at - System.currentTimeMillis()) > 0; ) LockSupport.parkNanos(early * 1_000_000);
            return later < 0
                ? Tuple3.of(at, number.intValue(), (int) (number % 101))
                : Tuple3.of(at, (int) (later * 7_919 % keys), (int) (later % 101));
        }
    }

    static final class Sums extends KeyedProcessFunction<Integer, Tuple3<Long, Integer, Integer>, Tuple3<Long, Integer, Long>> {
        private final int notes;
        private transient ValueState<Memory> memories;
        Sums(int notes) { this.notes = notes; }
        @Override public void open(OpenContext context) {
            memories = getRuntimeContext().getState(new ValueStateDescriptor<>("memory", Types.POJO(Memory.class)));
        }
        @Override public void processElement(Tuple3<Long, Integer, Integer> row, Context context, Collector<Tuple3<Long, Integer, Long>> out)
                throws Exception {
            Memory memory = memories.value();
            if (memory == null) {
                memory = new Memory();
                memory.notes = String.format("%016d", row.f1).repeat(notes / 16);
            }
            memory.total += row.f2;
            memories.update(memory);
            out.collect(Tuple3.of(row.f0, row.f1, memory.total));
        }
    }

    /** Lines of a file, seen by readers within a millisecond; not taken back after a failure, so rows come again. */
    static final class Lines implements Sink<Tuple3<Long, Integer, Long>> {
        private final String folder;
        Lines(String folder) { this.folder = folder; }
        @Override public SinkWriter<Tuple3<Long, Integer, Long>> createWriter(WriterInitContext context) throws IOException {
            Path file = Path.of(folder, "out-" + context.getTaskInfo().getAttemptNumber() + ".csv");
            BufferedWriter lines = Files.newBufferedWriter(file, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            return new SinkWriter<>() {
                private long flushed;
                @Override public void write(Tuple3<Long, Integer, Long> row, Context ignored) throws IOException {
                    lines.write(row.f0 + "," + row.f1 + "," + row.f2 + "\n");
                    long now = System.currentTimeMillis();
                    if (now != flushed) { lines.flush(); flushed = now; }
                }
                @Override public void flush(boolean endOfInput) throws IOException { lines.flush(); }
                @Override public void close() throws IOException { lines.close(); }
            };
        }
    }

    public static void main(String[] args) throws Exception {
        long keys = Long.parseLong(args[1]), loadMs = Long.parseLong(args[3]), rate = Long.parseLong(args[4]);
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.setParallelism(1);
        environment
            .fromSource(new NumberSequenceSource(0, Long.MAX_VALUE / 8_000), WatermarkStrategy.noWatermarks(), "readings")
            .map(new Paced(System.currentTimeMillis() + 1_000, keys, loadMs, rate))
            .returns(Types.TUPLE(Types.LONG, Types.INT, Types.INT))
            .keyBy(row -> row.f1, Types.INT)
            .process(new Sums(Integer.parseInt(args[2]))).name("sums").uid("sums").setParallelism(Integer.parseInt(args[5]))
            .returns(Types.TUPLE(Types.LONG, Types.INT, Types.LONG))
            .sinkTo(new Lines(args[0])).name("report");
        environment.execute("plug");
    }
}
