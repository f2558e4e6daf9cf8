import java.util.Locale;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.functions.ScalarFunction;

/**
 * J1 and J2 in Flink SQL, in one virtual machine, one slot.
 *
 * FlinkJobs j1|zone|vehicle FILE     prints RESULT and a JSON object
 *
 * The sink is Flink's own "blackhole"; the sums are taken by a function just before it, which costs what a sink that
 * counts would cost.
 */
public class FlinkJobs {
    /** Counts and checksums; one slot and one virtual machine, so one of each. */
    static final class Sums {
        static volatile long rows, count, keys, cells;
        static volatile double ratios, fares, means;
    }

    /** J1: adds (ratio, cell). */
    public static class AddRow extends ScalarFunction {
        private long rows, cells;
        private double ratios;
        @Override public boolean isDeterministic() { return false; }
        public Integer eval(Double ratio, Long cell) {
            rows++; ratios += ratio; cells += cell;
            return 1;
        }
        @Override public void close() { Sums.rows += rows; Sums.cells += cells; Sums.ratios += ratios; }
    }

    /** J2: adds (key, count, fares, mean). */
    public static class AddWindow extends ScalarFunction {
        private long rows, count, keys;
        private double fares, means;
        @Override public boolean isDeterministic() { return false; }
        public Integer eval(Integer key, Long n, Double sum, Double mean) {
            rows++; count += n; keys += key * n; fares += sum; means += mean;
            return 1;
        }
        @Override public void close() {
            Sums.rows += rows; Sums.count += count; Sums.keys += keys; Sums.fares += fares; Sums.means += means;
        }
    }

    private static final String SOURCE =
        "CREATE TABLE trips (ts BIGINT, medallion STRING, license STRING, zone INT, vehicle INT, pickup STRING,"
        + " dropoff STRING, lon DOUBLE, lat DOUBLE, dist DOUBLE, fare DOUBLE, tip DOUBLE,"
        + " at_time AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR at_time AS at_time - INTERVAL '0.001' SECOND)"
        + " WITH ('connector' = 'filesystem', 'path' = 'file://%s', 'format' = 'csv')";
    private static final String DERIVED =
        "SELECT zone, vehicle, fare, at_time, tip / fare AS ratio,"
        + " CAST((lon + 74.1) * 1000 AS BIGINT) * 1000 + CAST((lat - 40.5) * 1000 AS BIGINT) AS cell"
        + " FROM trips WHERE fare >= 12.5";
    private static final String WINDOWS =
        "SELECT %1$s AS k, COUNT(*) AS n, SUM(fare) AS fares, AVG(ratio) AS mean"
        + " FROM TUMBLE(TABLE derived, DESCRIPTOR(at_time), INTERVAL '1' SECOND)"
        + " GROUP BY window_start, window_end, %1$s";

    public static void main(String[] args) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("parallelism.default", "1");
        configuration.setString("table.exec.resource.default-parallelism", "1");
        configuration.setString("pipeline.object-reuse", "true");
        configuration.setString("rest.bind-port", "20000-20400");
        TableEnvironment tables = TableEnvironment.create(
            EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build());
        tables.createTemporarySystemFunction("add_row", AddRow.class);
        tables.createTemporarySystemFunction("add_window", AddWindow.class);
        tables.executeSql(String.format(SOURCE, args[1]));
        tables.executeSql("CREATE TABLE nowhere (x INT) WITH ('connector' = 'blackhole')");
        tables.executeSql("CREATE TEMPORARY VIEW derived AS " + DERIVED);
        String query = args[0].equals("j1")
            ? "SELECT add_row(ratio, cell) FROM derived"
            : "SELECT add_window(k, n, fares, mean) FROM (" + String.format(WINDOWS, args[0]) + ")";
        long began = System.nanoTime();
        tables.executeSql("INSERT INTO nowhere " + query).await();
        double seconds = (System.nanoTime() - began) / 1e9;
        if (args[0].equals("j1")) {
            System.out.printf(Locale.ROOT, "RESULT {\"count\": %d, \"cells\": %d, \"ratios\": %s, \"seconds\": %s}%n",
                Sums.rows, Sums.cells, Sums.ratios, seconds);
        } else {
            System.out.printf(Locale.ROOT,
                "RESULT {\"windows\": %d, \"count\": %d, \"keys\": %d, \"fares\": %s, \"means\": %s, \"seconds\": %s}%n",
                Sums.rows, Sums.count, Sums.keys, Sums.fares, Sums.means, seconds);
        }
        System.exit(0);
    }
}
