import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.functions;

/**
 * For measurements: writes a table of numbers as Parquet (arguments `write`, a directory, the number of MiB), or reads
 * every column of it (arguments `scan`, a directory, the number of scans). Prints lines `= NAME: VALUE`.
 */
public final class Scan {
    private static final int COLUMNS = 16;

    public static void main(String[] arguments) throws Exception {
        SparkSession spark = SparkSession.builder()
                .master("local[2]")
                .appName("scan")
                .config("spark.ui.enabled", false)
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .getOrCreate();
        int amount = Integer.parseInt(arguments[2]);
        if (arguments[0].equals("write")) {
            write(spark, arguments[1], amount);
        } else {
            scan(spark, arguments[1], amount);
        }
        spark.stop();
    }

    /** Numbers that no encoding makes shorter. */
    private static void write(SparkSession spark, String directory, int mib) throws Exception {
        List<Column> columns = new ArrayList<>();
        for (int column = 0; column < COLUMNS; column++) {
            columns.add(functions.xxhash64(functions.col("id"), functions.lit(column)).as("c" + column));
        }
        spark.range(0, ((long) mib << 20) / (8 * COLUMNS), 1, 8)
                .select(columns.toArray(new Column[0]))
                .write()
                .option("compression", "none")
                .option("parquet.enable.dictionary", "false")
                .parquet(directory);
        try (FileSystem fs = FileSystem.newInstance(URI.create(directory), spark.sparkContext().hadoopConfiguration())) {
            say("bytes", fs.getContentSummary(new Path(directory)).getLength());
        }
    }

    private static void scan(SparkSession spark, String directory, int count) {
        OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        String[] sums = new String[COLUMNS];
        for (int column = 0; column < COLUMNS; column++) {
            // It needs each value.
            sums[column] = "bit_xor(c" + column + ")";
        }
        for (int round = 0; round < count; round++) {
            // Spark keeps what the stages of a query gave: the same one would not read again.
            Dataset<Row> query = spark.read().parquet(directory).selectExpr(sums);
            long read = bytesRead();
            long cpu = process.getProcessCpuTime();
            long started = System.nanoTime();
            List<Row> rows = query.collectAsList();
            say("wall", (System.nanoTime() - started) / 1e9);
            say("cpu", (process.getProcessCpuTime() - cpu) / 1e9);
            say("read", bytesRead() - read);
            say("result", rows);
        }
    }

    private static long bytesRead() {
        long bytes = 0;
        for (FileSystem.Statistics each : FileSystem.getAllStatistics()) {
            bytes += each.getBytesRead();
        }
        return bytes;
    }

    private static void say(String name, Object value) {
        System.out.println("= " + name + ": " + value);
    }
}
