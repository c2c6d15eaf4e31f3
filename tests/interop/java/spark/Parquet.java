import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.count;
import static org.apache.spark.sql.functions.countDistinct;
import static org.apache.spark.sql.functions.max;
import static org.apache.spark.sql.functions.min;
import static org.apache.spark.sql.functions.sum;

import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.SparkSession;

/**
 * Writes, reads, appends to and overwrites Parquet in the directory that the argument names, in one JVM with two
 * concurrent tasks. Prints each result as a line `= NAME: VALUE`. The results depend only on this program.
 */
public final class Parquet {
    private static final long ROWS = 400_000;

    public static void main(String[] arguments) {
        String base = arguments[0];
        SparkSession spark = SparkSession.builder()
                .master("local[2]")
                .appName("parquet")
                .config("spark.ui.enabled", false)
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.sql.shuffle.partitions", 4)
                .getOrCreate();
        String rows = base + "/rows";
        String sorted = base + "/sorted";

        rows(spark, 0, ROWS).write().partitionBy("part").parquet(rows);
        Dataset<Row> read = spark.read().parquet(rows);
        say("written", whole(read));
        say("filtered", read.where("part = 3 and mixed > 0 and name like '%7'").count());
        // From the directory of one partition, and of one column.
        say("one", read.where("part = 5").selectExpr("count(*)", "sum(mixed)").collectAsList());
        say("groups", groups(read));
        say("joined", read.alias("a").join(read.alias("b"), col("a.id").equalTo(col("b.mixed"))).count());

        read.orderBy("mixed", "id").write().parquet(sorted);
        Dataset<Row> ordered = spark.read().parquet(sorted);
        say("sorted", whole(ordered));
        say("first", ordered.orderBy("mixed", "id").limit(5).select("id", "mixed", "name").collectAsList());
        say("in order", inOrder(ordered));

        rows(spark, ROWS, ROWS + ROWS / 4).write().mode(SaveMode.Append).partitionBy("part").parquet(rows);
        say("appended", whole(spark.read().parquet(rows)));
        say("groups after", groups(spark.read().parquet(rows)));

        rows(spark, 7, ROWS / 2).write().mode(SaveMode.Overwrite).parquet(sorted);
        say("overwritten", whole(spark.read().parquet(sorted)));
        // Only one partition is replaced; the others stay.
        rows(spark, 0, 7000).where("part = 2").write().mode(SaveMode.Overwrite)
                .option("partitionOverwriteMode", "dynamic").partitionBy("part").parquet(rows);
        say("one overwritten", groups(spark.read().parquet(rows)));
        spark.stop();
    }

    private static Dataset<Row> rows(SparkSession spark, long from, long to) {
        return spark.range(from, to, 1, 4).selectExpr(
                "id",
                "cast(id % 7 as int) as part",
                "cast(hash(id) as bigint) as mixed",
                "concat('name-', id % 1000) as name",
                "id / 3.0d as third");
    }

    /** The number of rows, and a sum that changes with any value of any row. */
    private static List<Row> whole(Dataset<Row> rows) {
        return rows.selectExpr("count(*)", "sum(cast(xxhash64(id, part, mixed, name, third) as decimal(38, 0)))")
                .collectAsList();
    }

    private static List<Row> groups(Dataset<Row> rows) {
        return rows.groupBy("part").agg(
                count("id"),
                sum("mixed"),
                min("name"),
                countDistinct("name")).orderBy("part").collectAsList();
    }

    /** Whether each file of a sort's output begins where the preceding one has ended. */
    private static boolean inOrder(Dataset<Row> sorted) {
        List<Row> files = sorted.selectExpr("input_file_name() as file", "mixed")
                .groupBy("file").agg(min("mixed").as("low"), max("mixed").as("high"))
                .orderBy("low").collectAsList();
        long last = Long.MIN_VALUE;
        for (Row file : files) {
            if (file.getLong(1) < last) {
                return false;
            }
            last = file.getLong(2);
        }
        return !files.isEmpty();
    }

    private static void say(String name, Object value) {
        System.out.println("= " + name + ": " + value);
    }
}
