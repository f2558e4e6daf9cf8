import java.io.BufferedReader;
import java.io.FileWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.math.BigDecimal;
import java.math.MathContext;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.TreeMap;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.storm.Config;
import org.apache.storm.StormSubmitter;
import org.apache.storm.generated.KillOptions;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;
import org.apache.storm.utils.NimbusClient;
import org.apache.storm.utils.Utils;

/**
 * The applications of figure 9 as topologies of Apache Storm: the same stages and the same results as those of agiledart_examples.
 *
 * StormApplications wait                   until nimbus and a supervisor run
 * StormApplications kill NAME
 * StormApplications APPLICATION NAME PORT RESULTS METADATA WORKERS
 *
 * Lines come from a TCP server on 127.0.0.1:PORT; results are appended to the file RESULTS, flushed one by one.
 * Each component has one task, so that tuples keep their order; with several workers they cross from process to process.
 */
public class StormApplications {
    static final Fields ROW = new Fields("key", "row");

    public static void main(String[] words) throws Exception {
        switch (words[0]) {
            case "wait":
                waitForSupervisor();
                return;
            case "kill":
                try (NimbusClient nimbus = nimbus()) {
                    KillOptions options = new KillOptions();
                    options.set_wait_secs(0);
                    nimbus.getClient().killTopologyWithOpts(words[1], options);
                }
                return;
            default:
                submit(words);
        }
    }

    private static NimbusClient nimbus() {
        return NimbusClient.getConfiguredClient(Utils.readStormConfig());
    }

    private static void waitForSupervisor() throws InterruptedException {
        while (true) {
            try (NimbusClient nimbus = nimbus()) {
                if (nimbus.getClient().getClusterInfo().get_supervisors_size() > 0) {
                    return;
                }
            } catch (Exception error) {
                System.err.println(error);
            }
            Thread.sleep(200);
        }
    }

    private static void submit(String[] words) throws Exception {
        int port = Integer.parseInt(words[2]);
        String results = words[3], metadata = words[4];
        TopologyBuilder builder = new TopologyBuilder();
        switch (words[0]) {
            case "frequent-routes":
                builder.setSpout("trips", new LineSpout(port, new RideParser()));
                builder.setBolt("route-frequency", new RouteFrequency()).fieldsGrouping("trips", new Fields("key"));
                builder.setBolt("busiest-routes", new BusiestRoutes(results)).globalGrouping("route-frequency");
                break;
            case "profitable-areas":
                builder.setSpout("trips", new LineSpout(port, new TaxiRideParser()));
                builder.setBolt("taxis", new Taxis()).fieldsGrouping("trips", new Fields("key"));
                builder.setBolt("areas", new Areas()).fieldsGrouping("taxis", new Fields("key"));
                builder.setBolt("best-areas", new BestAreas(results)).globalGrouping("areas");
                break;
            case "etl-city":
                builder.setSpout("messages", new LineSpout(port, new SenmlParser()));
                builder.setBolt("observations", new Observations()).globalGrouping("messages");
                builder.setBolt("bloom-filter", new KnownSensors(metadata)).fieldsGrouping("observations", new Fields("key"));
                builder.setBolt("interpolation", new Interpolation()).fieldsGrouping("bloom-filter", new Fields("key"));
                builder.setBolt("join", new MessageJoin()).fieldsGrouping("interpolation", new Fields("number"));
                builder.setBolt("annotate", new Annotate(metadata, results)).fieldsGrouping("join", new Fields("key"));
                break;
            case "urban-sensing":
                builder.setSpout("readings", new LineSpout(port, new UrbanParser()));
                var sink = builder.setBolt("summaries", new ResultFile(results));
                for (int kind = 0; kind < UrbanParser.KINDS.length; kind++) {
                    String name = UrbanParser.KINDS[kind] + "-summary";
                    builder.setBolt(name, new CitySummary(kind)).fieldsGrouping("readings", new Fields("key"));
                    sink.globalGrouping(name);
                }
                break;
            default:
                throw new IllegalArgumentException("there is no application " + words[0]);
        }
        Config settings = new Config();
        settings.setNumWorkers(Integer.parseInt(words[5]));
        settings.setNumAckers(0);
        for (Class<?> type : new Class<?>[] {Object[].class, double[].class, BigDecimal.class}) {
            settings.registerSerialization(type);
        }
        StormSubmitter.submitTopology(words[1], settings, builder.createTopology());
    }

    // ---- input and output

    /** Parser of a line: a key and a row; null for a line that gives none. */
    interface LineParser extends java.io.Serializable {
        Values parse(String line);
    }

    /** Lines of a TCP server. */
    static class LineSpout extends BaseRichSpout {
        private final int port;
        private final LineParser parser;
        private transient SpoutOutputCollector out;
        private transient LinkedBlockingQueue<String> lines;

        LineSpout(int port, LineParser parser) {
            this.port = port;
            this.parser = parser;
        }

        @Override
        public void open(Map<String, Object> settings, TopologyContext context, SpoutOutputCollector collector) {
            out = collector;
            lines = new LinkedBlockingQueue<>();
            Thread reader = new Thread(this::read);
            reader.setDaemon(true);
            reader.start();
        }

        private void read() {
            try (Socket socket = new Socket("127.0.0.1", port);
                    BufferedReader text = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8))) {
                for (String line; (line = text.readLine()) != null; ) {
                    lines.add(line);
                }
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        @Override
        public void nextTuple() {
            String line = lines.poll();
            if (line != null) {
                Values row = parser.parse(line);
                if (row != null) {
                    out.emit(row);
                }
            }
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(ROW);
        }
    }

    /** Bolt with an output of keys and rows. */
    abstract static class Stage extends BaseBasicBolt {
        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(ROW);
        }
    }

    /** Bolt that appends the results that come, or that it makes, to a file. */
    static class ResultFile extends BaseBasicBolt {
        private final String path;
        private transient Writer file;

        ResultFile(String path) {
            this.path = path;
        }

        @Override
        public void prepare(Map<String, Object> settings, TopologyContext context) {
            try {
                file = new FileWriter(path, StandardCharsets.UTF_8, true);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        @Override
        public void execute(Tuple tuple, BasicOutputCollector out) {
            write(tuple.getString(1));
        }

        void write(String line) {
            try {
                file.write(line + "\n");
                file.flush();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {}
    }

    // ---- taxi trips

    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss");

    static long milliseconds(String time) {
        return LocalDateTime.parse(time, TIME).toInstant(ZoneOffset.UTC).toEpochMilli();
    }

    /** Cell of a place as east * 100000 + south, from 1; -1 outside of the grid. */
    static long cell(String longitude, String latitude, int per500m) {
        double east = (Double.parseDouble(longitude) + 74.913585) / (0.005986 / per500m) + 0.5;
        double south = (41.474937 - Double.parseDouble(latitude)) / (0.004491556 / per500m) + 0.5;
        int last = 300 * per500m;
        if (!(east >= 0 && east < last && south >= 0 && south < last)) {
            return -1;
        }
        return ((long) Math.floor(east) + 1) * 100_000 + (long) Math.floor(south) + 1;
    }

    static String cellName(long cell) {
        return cell / 100_000 + "." + cell % 100_000;
    }

    /** Row: time, number of the trip (0: time alone caused it), pick-up, drop-off, then what differs. */
    static class Trip {
        final String[] columns;
        final long start, end;
        final boolean isWhole;

        Trip(String line, int per500m) {
            columns = line.split(",", -1);
            start = cell(columns[6], columns[7], per500m);
            end = cell(columns[8], columns[9], per500m);
            isWhole = start >= 0 && end >= 0 && columns[3].compareTo(columns[2]) >= 0;
        }
    }

    static class RideParser implements LineParser {
        private long number;

        @Override
        public Values parse(String line) {
            Trip trip = new Trip(line, 1);
            if (!trip.isWhole) {
                return null;
            }
            number++;
            String[] c = trip.columns;
            return new Values(trip.start + ":" + trip.end, new Object[] {milliseconds(c[3]), number, c[2], c[3], trip.start, trip.end});
        }
    }

    /** Number of rides of each route in the last 30 minutes. */
    static class RouteFrequency extends Stage {
        private static final long SPAN = 30 * 60_000;
        private final Map<String, long[]> counts = new HashMap<>();
        private final ArrayDeque<Object[]> rides = new ArrayDeque<>();

        @Override
        public void execute(Tuple tuple, BasicOutputCollector out) {
            Object[] ride = (Object[]) tuple.getValue(1);
            long now = (Long) ride[0];
            while (!rides.isEmpty() && (Long) rides.peek()[0] + SPAN <= now) {
                Object[] old = rides.poll();
                count(old, -1, 0L, out);
            }
            rides.add(ride);
            count(ride, 1, (Long) ride[1], out);
        }

        private void count(Object[] ride, long change, long cause, BasicOutputCollector out) {
            String route = ride[4] + ":" + ride[5];
            long[] count = counts.computeIfAbsent(route, key -> new long[1]);
            count[0] += change;
            if (count[0] == 0) {
                counts.remove(route);
            }
            out.emit(new Values(route, new Object[] {cause, ride[2], ride[3], ride[4], ride[5], count[0]}));
        }
    }

    /** Entry of a ranking: rank, number of the trip that renewed it, key. */
    static class Place<V extends Comparable<V>> {
        final V rank;
        final long renewed, first, second;
        final Object value;

        Place(V rank, long renewed, long first, long second, Object value) {
            this.rank = rank;
            this.renewed = renewed;
            this.first = first;
            this.second = second;
            this.value = value;
        }

        static <V extends Comparable<V>> Comparator<Place<V>> order() {
            return Comparator.<Place<V>, V>comparing(place -> place.rank).reversed()
                .thenComparing(place -> -place.renewed)
                .thenComparing(place -> place.first)
                .thenComparing(place -> place.second);
        }
    }

    /** All keys in order of rank; ties: newer information first, then the smaller key. */
    static class RankedKeys<V extends Comparable<V>> {
        final TreeMap<Place<V>, Place<V>> order = new TreeMap<>(Place.order());
        private final Map<String, Place<V>> places = new HashMap<>();

        void update(String key, V rank, long cause, long first, long second, Object value) {
            Place<V> old = places.remove(key);
            if (old != null) {
                order.remove(old);
            }
            if (rank == null) {
                return;
            }
            long renewed = cause > 0 ? cause : old == null ? 0 : old.renewed;
            Place<V> place = new Place<>(rank, renewed, first, second, value);
            places.put(key, place);
            order.put(place, place);
        }

        List<Place<V>> best(int count) {
            List<Place<V>> best = new ArrayList<>();
            for (Place<V> place : order.keySet()) {
                if (best.size() == count) {
                    break;
                }
                best.add(place);
            }
            return best;
        }
    }

    /** A ranking with empty places, as the text of a line. */
    static String padded(List<String> cells, int count) {
        List<String> all = new ArrayList<>(cells);
        while (all.size() < count) {
            all.add("NULL");
        }
        return String.join(",", all);
    }

    static class BusiestRoutes extends ResultFile {
        private transient RankedKeys<Long> ranking;
        private String last = padded(List.of(), 20);

        BusiestRoutes(String path) {
            super(path);
        }

        @Override
        public void prepare(Map<String, Object> settings, TopologyContext context) {
            super.prepare(settings, context);
            ranking = new RankedKeys<>();
        }

        @Override
        public void execute(Tuple tuple, BasicOutputCollector out) {
            Object[] row = (Object[]) tuple.getValue(1);
            long cause = (Long) row[0], count = (Long) row[5];
            ranking.update(tuple.getString(0), count == 0 ? null : count, cause, (Long) row[3], (Long) row[4], null);
            if (cause == 0) {
                return;
            }
            List<String> cells = new ArrayList<>();
            for (Place<Long> place : ranking.best(10)) {
                cells.add(cellName(place.first));
                cells.add(cellName(place.second));
            }
            String text = padded(cells, 20);
            if (!text.equals(last)) {
                last = text;
                write(row[1] + "," + row[2] + "," + text);
            }
        }
    }

    static class TaxiRideParser implements LineParser {
        private long number;

        @Override
        public Values parse(String line) {
            Trip trip = new Trip(line, 2);
            if (!trip.isWhole) {
                return null;
            }
            number++;
            String[] c = trip.columns;
            BigDecimal profit = new BigDecimal(c[11]).add(new BigDecimal(c[14]));
            return new Values(c[0], new Object[] {milliseconds(c[3]), number, c[2], c[3], trip.start, trip.end, profit});
        }
    }

    /** Timer of a key. */
    static class Timer {
        final long at, number;
        final Object key, payload;

        Timer(long at, long number, Object key, Object payload) {
            this.at = at;
            this.number = number;
            this.key = key;
            this.payload = payload;
        }

        static PriorityQueue<Timer> queue() {
            return new PriorityQueue<>(Comparator.<Timer>comparingLong(timer -> timer.at).thenComparingLong(timer -> timer.number));
        }
    }

    /** Where each taxi stands empty, for 30 minutes or until its next trip. */
    static class Taxis extends Stage {
        private static final long SPAN = 30 * 60_000;
        private final Map<String, long[]> stands = new HashMap<>();
        private transient PriorityQueue<Timer> timers;
        private long number;

        @Override
        public void prepare(Map<String, Object> settings, TopologyContext context) {
            timers = Timer.queue();
        }

        @Override
        public void execute(Tuple tuple, BasicOutputCollector out) {
            Object[] ride = (Object[]) tuple.getValue(1);
            long now = (Long) ride[0], trip = (Long) ride[1], start = (Long) ride[4], end = (Long) ride[5];
            while (!timers.isEmpty() && timers.peek().at <= now) {
                Timer timer = timers.poll();
                long[] stand = stands.get((String) timer.key);
                if (stand != null && stand[1] == (Long) timer.payload) {
                    emit(out, timer.at, 0, stand[0], -1, null, null);
                    stands.remove((String) timer.key);
                }
            }
            String taxi = tuple.getString(0);
            long[] stand = stands.get(taxi);
            if (stand == null) {
                stand = new long[] {-1, 0};
                stands.put(taxi, stand);
            } else {
                emit(out, now, trip, stand[0], -1, null, null);
            }
            stand[0] = end;
            stand[1] = trip;
            emit(out, now, trip, end, 1, null, null);
            emit(out, now, trip, start, 0, (BigDecimal) ride[6], ride[2] + "," + ride[3]);
            timers.add(new Timer(now + SPAN, number++, taxi, trip));
        }

        private static void emit(BasicOutputCollector out, long at, long trip, long area, int taxis, BigDecimal profit, String occasion) {
            out.emit(new Values(area, new Object[] {at, trip, area, taxis, profit, occasion}));
        }
    }

    /** Profits of the last 15 minutes and empty taxis of each area. */
    static class Areas extends Stage {
        private static final long SPAN = 15 * 60_000;
        private final Map<Long, Area> areas = new HashMap<>();
        private transient PriorityQueue<Timer> timers;
        private long number;

        static class Area {
            final List<BigDecimal> profits = new ArrayList<>();
            int taxis;
        }

        @Override
        public void prepare(Map<String, Object> settings, TopologyContext context) {
            timers = Timer.queue();
        }

        @Override
        public void execute(Tuple tuple, BasicOutputCollector out) {
            Object[] row = (Object[]) tuple.getValue(1);
            long now = (Long) row[0], key = (Long) row[2];
            while (!timers.isEmpty() && timers.peek().at <= now) {
                Timer timer = timers.poll();
                Area old = areas.get((Long) timer.key);
                old.profits.remove(Collections.binarySearch(old.profits, (BigDecimal) timer.payload));
                emit((Long) timer.key, old, 0, null, out);
            }
            Area area = areas.computeIfAbsent(key, unused -> new Area());
            area.taxis += (Integer) row[3];
            BigDecimal profit = (BigDecimal) row[4];
            if (profit != null) {
                int place = Collections.binarySearch(area.profits, profit);
                area.profits.add(place < 0 ? -place - 1 : place, profit);
                timers.add(new Timer(now + SPAN, number++, key, profit));
            }
            emit(key, area, (Long) row[1], (String) row[5], out);
        }

        private void emit(long key, Area area, long trip, String occasion, BasicOutputCollector out) {
            BigDecimal median = null, value = null;
            int count = area.profits.size();
            if (area.taxis != 0 && count > 0) {
                median = area.profits.get(count / 2);
                if (count % 2 == 0) {
                    median = median.add(area.profits.get(count / 2 - 1)).divide(BigDecimal.valueOf(2), MathContext.DECIMAL128);
                }
                value = median.divide(BigDecimal.valueOf(area.taxis), DECIMAL_28);
            }
            out.emit(new Values(key, new Object[] {trip, key, area.taxis, median, value, occasion}));
            if (count == 0 && area.taxis == 0) {
                areas.remove(key);
            }
        }
    }

    static final MathContext DECIMAL_28 = new MathContext(28, java.math.RoundingMode.HALF_EVEN);

    static class BestAreas extends ResultFile {
        private transient RankedKeys<BigDecimal> ranking;
        private String last = padded(List.of(), 40);

        BestAreas(String path) {
            super(path);
        }

        @Override
        public void prepare(Map<String, Object> settings, TopologyContext context) {
            super.prepare(settings, context);
            ranking = new RankedKeys<>();
        }

        @Override
        public void execute(Tuple tuple, BasicOutputCollector out) {
            Object[] row = (Object[]) tuple.getValue(1);
            long key = (Long) row[1];
            BigDecimal value = (BigDecimal) row[4];
            String text = value == null ? "" : cellName(key) + "," + row[2] + "," + plain((BigDecimal) row[3]) + "," + plain(value);
            ranking.update(String.valueOf(key), value, (Long) row[0], key, 0, text);
            if (row[5] == null) {
                return;
            }
            List<String> areas = new ArrayList<>();
            for (Place<BigDecimal> place : ranking.best(10)) {
                areas.addAll(Arrays.asList(((String) place.value).split(",")));
            }
            String whole = padded(areas, 40);
            if (!whole.equals(last)) {
                last = whole;
                write(row[5] + "," + whole);
            }
        }

        private static String plain(BigDecimal number) {
            return number.stripTrailingZeros().toPlainString();
        }
    }

    // ---- ETL of RIoTBench

    static final String[] CITY_FIELDS = {"temperature", "humidity", "light", "dust", "airquality_raw"};
    static final double[][] CITY_RANGES = {{0.7, 35.1}, {20.3, 69.1}, {0.0, 5153.0}, {83.36, 3322.67}, {12.0, 49.0}};

    /** Parser of `milliseconds,SenML`: time, sensor, values (NaN for a missing one). */
    static class SenmlParser implements LineParser {
        @Override
        public Values parse(String line) {
            int comma = line.indexOf(',');
            Map<?, ?> message = (Map<?, ?>) org.apache.storm.shade.net.minidev.json.JSONValue.parse(line.substring(comma + 1));
            String sensor = null;
            double[] values = new double[CITY_FIELDS.length];
            Arrays.fill(values, Double.NaN);
            for (Object entry : (List<?>) message.get("e")) {
                Map<?, ?> named = (Map<?, ?>) entry;
                String name = (String) named.get("n");
                if (name.equals("source")) {
                    sensor = (String) named.get("sv");
                }
                int place = Arrays.asList(CITY_FIELDS).indexOf(name);
                String value = (String) named.get("v");
                if (place >= 0 && value != null && !value.isEmpty()) {
                    values[place] = Double.parseDouble(value);
                }
            }
            return new Values("", new Object[] {Long.parseLong(line.substring(0, comma)), sensor, values});
        }
    }

    /** One row for each field of a numbered message, values outside of their range missing. */
    static class Observations extends Stage {
        private long number;

        @Override
        public void execute(Tuple tuple, BasicOutputCollector out) {
            Object[] message = (Object[]) tuple.getValue(1);
            double[] values = (double[]) message[2];
            for (int field = 0; field < values.length; field++) {
                double value = values[field];
                boolean isValid = value >= CITY_RANGES[field][0] && value <= CITY_RANGES[field][1];
                Object[] row = {number, message[0], message[1], field, isValid ? value : Double.NaN};
                out.emit(new Values(message[1] + ":" + field, row));
            }
            number++;
        }
    }

    static Map<String, String[]> annotations(String path) {
        Map<String, String[]> annotations = new LinkedHashMap<>();
        try {
            for (String line : Files.readAllLines(Paths.get(path))) {
                int colon = line.indexOf(':');
                annotations.put(line.substring(0, colon), line.substring(colon + 1).split(",", -1));
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return annotations;
    }

    /** Values of sensors that a Bloom filter does not know become missing. */
    static class KnownSensors extends Stage {
        private static final int BITS = 1_917_011, HASHES = 7;
        private final String metadata;
        private transient BitSet bits;

        KnownSensors(String metadata) {
            this.metadata = metadata;
        }

        @Override
        public void prepare(Map<String, Object> settings, TopologyContext context) {
            bits = new BitSet(BITS);
            for (String sensor : annotations(metadata).keySet()) {
                for (int place : places(sensor)) {
                    bits.set(place);
                }
            }
        }

        private static int[] places(String text) {
            long hash = 0xcbf29ce484222325L;
            for (int i = 0; i < text.length(); i++) {
                hash = (hash ^ text.charAt(i)) * 0x100000001b3L;
            }
            long step = hash >>> 32 | 1;
            int[] places = new int[HASHES];
            for (int i = 0; i < HASHES; i++) {
                places[i] = (int) Long.remainderUnsigned((hash & 0xffffffffL) + i * step, BITS);
            }
            return places;
        }

        @Override
        public void execute(Tuple tuple, BasicOutputCollector out) {
            Object[] row = ((Object[]) tuple.getValue(1)).clone();
            for (int place : places((String) row[2])) {
                if (!bits.get(place)) {
                    row[4] = Double.NaN;
                }
            }
            out.emit(new Values(tuple.getString(0), row));
        }
    }

    /** The mean of the last five valid values of a sensor's field in place of a missing one; 0 without any. */
    static class Interpolation extends BaseBasicBolt {
        private final Map<String, ArrayDeque<Double>> recent = new HashMap<>();

        @Override
        public void execute(Tuple tuple, BasicOutputCollector out) {
            Object[] row = ((Object[]) tuple.getValue(1)).clone();
            ArrayDeque<Double> values = recent.computeIfAbsent(tuple.getString(0), key -> new ArrayDeque<>());
            if (Double.isNaN((Double) row[4])) {
                double sum = 0;
                for (double value : values) {
                    sum += value;
                }
                row[4] = values.isEmpty() ? 0.0 : sum / values.size();
            } else {
                values.add((Double) row[4]);
                if (values.size() > 5) {
                    values.poll();
                }
            }
            out.emit(new Values(row[0], row));
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("number", "row"));
        }
    }

    /** All fields of a message. */
    static class MessageJoin extends Stage {
        private final Map<Long, double[]> open = new HashMap<>();
        private final Map<Long, int[]> counts = new HashMap<>();

        @Override
        public void execute(Tuple tuple, BasicOutputCollector out) {
            Object[] row = (Object[]) tuple.getValue(1);
            Long number = (Long) row[0];
            double[] values = open.computeIfAbsent(number, key -> new double[CITY_FIELDS.length]);
            int[] count = counts.computeIfAbsent(number, key -> new int[1]);
            values[(Integer) row[3]] = (Double) row[4];
            if (++count[0] == CITY_FIELDS.length) {
                open.remove(number);
                counts.remove(number);
                out.emit(new Values(row[2], new Object[] {number, row[1], row[2], values}));
            }
        }
    }

    /** Row of the table with the annotations of its sensor, and the same as SenML, which nothing reads. */
    static class Annotate extends ResultFile {
        private final String metadata;
        private transient Map<String, String[]> annotations;
        private long published;

        Annotate(String metadata, String path) {
            super(path);
            this.metadata = metadata;
        }

        @Override
        public void prepare(Map<String, Object> settings, TopologyContext context) {
            super.prepare(settings, context);
            annotations = annotations(metadata);
        }

        @Override
        public void execute(Tuple tuple, BasicOutputCollector out) {
            Object[] row = (Object[]) tuple.getValue(1);
            String[] texts = annotations.getOrDefault((String) row[2], new String[] {"", ""});
            StringBuilder line = new StringBuilder();
            StringBuilder senml = new StringBuilder("{\"e\":[{\"u\":\"string\",\"n\":\"source\",\"sv\":\"" + row[2] + "\"}");
            line.append(row[0]).append(',').append(row[1]).append(',').append(row[2]);
            double[] values = (double[]) row[3];
            for (int field = 0; field < values.length; field++) {
                line.append(',').append(values[field]);
                String unit = field == 0 ? "far" : "per";
                senml.append(",{\"v\":\"" + values[field] + "\",\"u\":\"" + unit + "\",\"n\":\"" + CITY_FIELDS[field] + "\"}");
            }
            line.append(',').append(texts[0]).append(',').append(texts[1]);
            senml.append(",{\"u\":\"string\",\"n\":\"location\",\"sv\":\"" + texts[0] + "\"}");
            senml.append(",{\"u\":\"string\",\"n\":\"type\",\"sv\":\"" + texts[1] + "\"}],\"bt\":" + row[1] + "}");
            published += senml.length();
            write(line.toString());
        }
    }

    // ---- urban sensing

    /** Parser of a reading: time and values by kind, NaN for a missing one. */
    static class UrbanParser implements LineParser {
        static final String[] KINDS = {"pollution", "dust", "light", "sound", "temperature", "humidity"};
        private static final int[] COLUMNS = {7, 6, 5, 8, 3, 4};

        @Override
        public Values parse(String line) {
            String[] columns = line.split(",", -1);
            double[] values = new double[KINDS.length];
            for (int kind = 0; kind < values.length; kind++) {
                String text = columns[COLUMNS[kind]];
                values[kind] = text.isEmpty() ? Double.NaN : Double.parseDouble(text);
            }
            return new Values(columns[1], new Object[] {Long.parseLong(columns[0]), values});
        }
    }

    /** Number, mean, least and greatest value of a kind by city and minute. */
    static class CitySummary extends Stage {
        private static final long SPAN = 60_000;
        private final int kind;
        private final Map<String, double[]> cities = new TreeMap<>();
        private long start = -1;

        CitySummary(int kind) {
            this.kind = kind;
        }

        @Override
        public void execute(Tuple tuple, BasicOutputCollector out) {
            Object[] row = (Object[]) tuple.getValue(1);
            long now = (Long) row[0];
            double value = ((double[]) row[1])[kind];
            if (now >= start + SPAN) {
                for (Map.Entry<String, double[]> city : cities.entrySet()) {
                    double[] sums = city.getValue();
                    String line = String.join(",", city.getKey(), UrbanParser.KINDS[kind], String.valueOf(start), String.valueOf((long) sums[0]),
                        String.valueOf(sums[1] / sums[0]), String.valueOf(sums[2]), String.valueOf(sums[3]));
                    out.emit(new Values(city.getKey(), line));
                }
                cities.clear();
                start = now - now % SPAN;
            }
            if (!Double.isNaN(value)) {
                double[] sums = cities.computeIfAbsent(tuple.getString(0), key -> new double[] {0, 0, value, value});
                sums[0]++;
                sums[1] += value;
                sums[2] = Math.min(sums[2], value);
                sums[3] = Math.max(sums[3], value);
            }
        }
    }
}
