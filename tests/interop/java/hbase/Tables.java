import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.Future;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;

/**
 * A client of HBase: operations arrive as lines of JSON on standard input, and each is answered by one line, as in
 * Driver.java.
 *
 * A row is a number. Its key and its value are computed from it, so the numbers are enough to check that the data read
 * is what was written.
 */
public final class Tables {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final byte[] FAMILY = {'f'};
    private static final byte[] COLUMN = {'v'};
    private static final int VALUE_BYTES = 96;
    private static final int BATCH = 200;
    /** Row numbers of a writer. Those of the next writer are higher. */
    private static final long WRITER_ROWS = 1L << 32;

    private final Connection connection;
    private final List<Writer> writers = new ArrayList<>();

    private Tables() throws IOException {
        connection = ConnectionFactory.createConnection(HBaseConfiguration.create());
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = System.out;
        // Other output must not be mixed with the answers.
        System.setOut(System.err);
        Tables tables = new Tables();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = requests.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("value", JSON.valueToTree(tables.run(JSON.readTree(line))));
            } catch (Throwable e) {
                e.printStackTrace();
                answer.put("error", e.getClass().getName()).put("message", String.valueOf(e.getMessage()));
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private Object run(JsonNode request) throws Exception {
        TableName name = TableName.valueOf(request.path("table").asText("rows"));
        switch (request.get("op").asText()) {
            // {"servers": [names]}: the servers that the master counts as live
            case "servers":
                try (Admin admin = connection.getAdmin()) {
                    List<String> servers = new ArrayList<>();
                    for (ServerName server : admin.getRegionServers()) {
                        servers.add(server.toString());
                    }
                    return servers;
                }
            // {"regions": number}
            case "create":
                create(name, request.get("regions").asInt());
                return null;
            // {}: number of the table's regions on each server
            case "holders": {
                Map<String, Integer> holders = new TreeMap<>();
                try (RegionLocator locator = connection.getRegionLocator(name)) {
                    locator.clearRegionLocationCache();
                    for (HRegionLocation location : locator.getAllRegionLocations()) {
                        holders.merge(String.valueOf(location.getServerName()), 1, Integer::sum);
                    }
                }
                return holders;
            }
            // {"from", "to", "threads"}
            case "put":
                put(name, request.get("from").asLong(), request.get("to").asLong(), request.get("threads").asInt());
                return null;
            // {}: flushes memory to store files
            case "flush":
                try (Admin admin = connection.getAdmin()) {
                    admin.flush(name);
                }
                return null;
            // {}: compacts, and waits for the end
            case "compact":
                compact(name);
                return null;
            // {"below", "count"}: gets of rows with random numbers; answers how many were wrong
            case "gets":
                return gets(name, request.get("below").asLong(), request.get("count").asInt());
            // {"whole": [[from, to]], "perhaps": [[from, to]]}: a scan of the table
            case "verify":
                return verify(name, request.get("whole"), request.path("perhaps"));
            // {}: reads all rows from the store files, for measurements; answers the number of rows and of their bytes
            case "scan":
                return scan(name);
            // {"writers", "from"}: starts writers, which write until they are stopped
            case "write":
                for (int number = 0; number < request.get("writers").asInt(); number++) {
                    Writer writer = new Writer(name, request.get("from").asLong() + number * WRITER_ROWS);
                    writers.add(writer);
                    writer.start();
                }
                return null;
            // {}: number of acknowledged rows of each writer so far
            case "written": {
                List<Long> acknowledged = new ArrayList<>();
                for (Writer writer : writers) {
                    acknowledged.add(writer.acknowledged - writer.first);
                }
                return acknowledged;
            }
            // {}: for each writer [its first row, one after the last acknowledged row, one after the last attempted
            // row]
            case "stop": {
                List<long[]> rows = new ArrayList<>();
                for (Writer writer : writers) {
                    writer.stop = true;
                }
                for (Writer writer : writers) {
                    writer.join();
                    rows.add(new long[] {writer.first, writer.acknowledged, writer.tried});
                }
                writers.clear();
                return rows;
            }
            default:
                throw new IllegalArgumentException(request.toString());
        }
    }

    private void create(TableName name, int regions) throws IOException {
        byte[][] splits = new byte[regions - 1][];
        for (int region = 1; region < regions; region++) {
            splits[region - 1] = String.format("%02x", 256 * region / regions).getBytes(StandardCharsets.US_ASCII);
        }
        try (Admin admin = connection.getAdmin()) {
            admin.createTable(
                    TableDescriptorBuilder.newBuilder(name)
                            .setColumnFamily(ColumnFamilyDescriptorBuilder.of(FAMILY))
                            .setDurability(Durability.SYNC_WAL)
                            .build(),
                    splits);
        }
    }

    private void put(TableName name, long from, long to, int threads) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<?>> parts = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            long start = from + (to - from) * thread / threads;
            long end = from + (to - from) * (thread + 1) / threads;
            parts.add(pool.submit(() -> {
                try (Table table = connection.getTable(name)) {
                    for (long row = start; row < end; row += BATCH) {
                        table.put(puts(row, Math.min(end, row + BATCH)));
                    }
                }
                return null;
            }));
        }
        pool.shutdown();
        for (Future<?> part : parts) {
            part.get();
        }
    }

    private void compact(TableName name) throws Exception {
        try (Admin admin = connection.getAdmin()) {
            long before = admin.getLastMajorCompactionTimestamp(name);
            admin.majorCompact(name);
            // The master learns the time from the servers' reports.
            while (admin.getLastMajorCompactionTimestamp(name) <= before
                    || admin.getCompactionState(name) != CompactionState.NONE) {
                Thread.sleep(200);
            }
        }
    }

    private int gets(TableName name, long below, int count) throws IOException {
        Random random = new Random(below);
        int wrong = 0;
        try (Table table = connection.getTable(name)) {
            for (int asked = 0; asked < count; asked++) {
                long row = (random.nextLong() >>> 1) % below;
                Result result = table.get(new Get(key(row)));
                if (!Arrays.equals(result.getValue(FAMILY, COLUMN), value(row))) {
                    wrong++;
                }
            }
        }
        return wrong;
    }

    /** Rows of `whole` must exist, rows of `perhaps` may, and no others. Each must have its own value. */
    private Map<String, Object> verify(TableName name, JsonNode whole, JsonNode perhaps) throws IOException {
        long expected = 0;
        for (JsonNode range : whole) {
            expected += range.get(1).asLong() - range.get(0).asLong();
        }
        long found = 0;
        long more = 0;
        List<String> wrong = new ArrayList<>();
        try (Table table = connection.getTable(name);
                ResultScanner scanner = table.getScanner(new Scan().setCaching(1000).setCacheBlocks(false))) {
            for (Result result; (result = scanner.next()) != null; ) {
                String key = new String(result.getRow(), StandardCharsets.US_ASCII);
                long row = Long.parseLong(key.substring(3));
                boolean right = Arrays.equals(result.getRow(), key(row))
                        && Arrays.equals(result.getValue(FAMILY, COLUMN), value(row));
                if (right && within(whole, row)) {
                    found++;
                } else if (right && within(perhaps, row)) {
                    more++;
                } else if (wrong.size() < 10) {
                    wrong.add(key);
                }
            }
        }
        Map<String, Object> answer = new TreeMap<>();
        // A scan returns no row twice, so the number shows whether all exist.
        answer.put("missing", expected - found);
        answer.put("found", found);
        answer.put("more", more);
        answer.put("wrong", wrong);
        return answer;
    }

    private Map<String, Object> scan(TableName name) throws IOException {
        long rows = 0;
        long bytes = 0;
        try (Table table = connection.getTable(name);
                ResultScanner scanner = table.getScanner(new Scan().setCaching(1000).setCacheBlocks(false))) {
            for (Result result; (result = scanner.next()) != null; ) {
                rows++;
                bytes += result.value().length;
            }
        }
        Map<String, Object> answer = new TreeMap<>();
        answer.put("rows", rows);
        answer.put("bytes", bytes);
        return answer;
    }

    private static boolean within(JsonNode ranges, long row) {
        for (JsonNode range : ranges) {
            if (row >= range.get(0).asLong() && row < range.get(1).asLong()) {
                return true;
            }
        }
        return false;
    }

    private static List<Put> puts(long from, long to) {
        List<Put> puts = new ArrayList<>();
        for (long row = from; row < to; row++) {
            puts.add(new Put(key(row)).addColumn(FAMILY, COLUMN, value(row)));
        }
        return puts;
    }

    private static long mixed(long number) {
        long mixed = (number + 1) * 0x9E3779B97F4A7C15L;
        mixed = (mixed ^ (mixed >>> 29)) * 0xBF58476D1CE4E5B9L;
        return mixed ^ (mixed >>> 32);
    }

    private static byte[] key(long row) {
        return String.format("%02x-%012d", mixed(row) & 0xff, row).getBytes(StandardCharsets.US_ASCII);
    }

    private static byte[] value(long row) {
        ByteBuffer value = ByteBuffer.allocate(VALUE_BYTES);
        for (long seed = row; value.hasRemaining(); ) {
            seed = mixed(seed);
            value.putLong(seed);
        }
        return value.array();
    }

    /** Writes rows in batches. Continues with the next batch when the last was acknowledged. */
    private final class Writer extends Thread {
        private static final int ROWS = 20;
        final TableName name;
        final long first;
        volatile long acknowledged;
        volatile long tried;
        volatile boolean stop;

        Writer(TableName name, long first) {
            this.name = name;
            this.first = first;
            acknowledged = first;
            tried = first;
            setDaemon(true);
        }

        @Override
        public void run() {
            while (!stop) {
                tried = acknowledged + ROWS;
                try (Table table = connection.getTable(name)) {
                    table.put(puts(acknowledged, tried));
                    acknowledged = tried;
                } catch (IOException e) {
                    // Repeats the same rows, because they were not acknowledged.
                    e.printStackTrace();
                }
            }
        }
    }
}
