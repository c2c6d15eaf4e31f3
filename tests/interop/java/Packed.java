import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import org.apache.avro.Schema;
import org.apache.avro.file.CodecFactory;
import org.apache.avro.file.DataFileWriter;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.BooleanWritable;
import org.apache.hadoop.io.ByteWritable;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.DoubleWritable;
import org.apache.hadoop.io.FloatWritable;
import org.apache.hadoop.io.IntWritable;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.MD5Hash;
import org.apache.hadoop.io.NullWritable;
import org.apache.hadoop.io.SequenceFile;
import org.apache.hadoop.io.SequenceFile.CompressionType;
import org.apache.hadoop.io.ShortWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.io.VIntWritable;
import org.apache.hadoop.io.VLongWritable;
import org.apache.hadoop.io.Writable;
import org.apache.hadoop.io.compress.CompressionCodec;
import org.apache.hadoop.io.compress.CompressionCodecFactory;

/**
 * Writes files that `hdfs dfs -text` shows as text into a local directory: compressed files, sequence files and Avro
 * files. Arguments: the directory, then simple names of the codecs.
 */
public final class Packed {
    private final Configuration conf = new Configuration();
    private final File directory;

    private Packed(File directory) {
        this.directory = directory;
    }

    public static void main(String[] arguments) throws Exception {
        Packed packed = new Packed(new File(arguments[0]));
        for (String codec : Arrays.asList(arguments).subList(1, arguments.length)) {
            packed.compressed(codec);
            packed.records(codec);
        }
        packed.classes();
        packed.avro();
    }

    private Path path(String name) {
        return new Path(new File(directory, name).toURI());
    }

    private CompressionCodec codec(String name) {
        return new CompressionCodecFactory(conf).getCodecByName(name);
    }

    /** Writes a text that is longer than a codec's block. */
    private void compressed(String name) throws IOException {
        CompressionCodec codec = codec(name);
        File file = new File(directory, "lines-" + name + codec.getDefaultExtension());
        try (OutputStream out = codec.createOutputStream(new java.io.FileOutputStream(file))) {
            for (int line = 0; line < 20000; line++) {
                int number = line < 300 ? line * 7919 : 0;
                out.write((number + ": the quick brown fox\n").getBytes(StandardCharsets.UTF_8));
            }
        }
    }

    private void records(String name) throws IOException {
        for (CompressionType type : new CompressionType[] {CompressionType.RECORD, CompressionType.BLOCK}) {
            SequenceFile.Metadata metadata = new SequenceFile.Metadata();
            metadata.set(new Text("who"), new Text("Packed"));
            try (SequenceFile.Writer writer = SequenceFile.createWriter(conf,
                    SequenceFile.Writer.file(path("records-" + name + "-" + type + ".seq")),
                    SequenceFile.Writer.keyClass(IntWritable.class),
                    SequenceFile.Writer.valueClass(Text.class),
                    SequenceFile.Writer.metadata(metadata),
                    SequenceFile.Writer.compression(type, codec(name)))) {
                // In blocks of a few records, with sync marks between records.
                for (int record = 0; record < 400; record++) {
                    writer.append(new IntWritable(record), new Text("the value of " + record + " \u00e9"));
                    if (record % 150 == 149) {
                        writer.sync();
                    }
                }
            }
        }
    }

    private void classes() throws IOException {
        Writable[] values = {
            new Text("a\u00e9\ud83d\ude00"), new BytesWritable(new byte[] {0, 10, -1}), NullWritable.get(),
            new BooleanWritable(true), new ByteWritable((byte) -2), new ShortWritable((short) -300),
            new IntWritable(-70000), new LongWritable(1L << 40), new VIntWritable(-129), new VLongWritable(1L << 50),
            new FloatWritable(0.1f), new DoubleWritable(1e-5), new MD5Hash(new byte[16]),
        };
        for (Writable value : values) {
            try (SequenceFile.Writer writer = SequenceFile.createWriter(conf,
                    SequenceFile.Writer.file(path("class-" + value.getClass().getSimpleName() + ".seq")),
                    SequenceFile.Writer.keyClass(value.getClass()),
                    SequenceFile.Writer.valueClass(value.getClass()),
                    SequenceFile.Writer.compression(CompressionType.NONE))) {
                for (int record = 0; record < 300; record++) {
                    writer.append(value, value);
                }
            }
        }
    }

    private static final String SCHEMA = "{'type': 'record', 'name': 'R', 'namespace': 'n', 'fields': ["
        + "{'name': 'b', 'type': 'boolean'}, {'name': 'i', 'type': 'int'}, {'name': 'l', 'type': 'long'},"
        + "{'name': 'f', 'type': 'float'}, {'name': 'd', 'type': 'double'}, {'name': 's', 'type': ['null', 'string']},"
        + "{'name': 'y', 'type': 'bytes'}, {'name': 'a', 'type': {'type': 'array', 'items': 'double'}},"
        + "{'name': 'm', 'type': {'type': 'map', 'values': ['int', 'string']}},"
        + "{'name': 'e', 'type': {'type': 'enum', 'name': 'E', 'symbols': ['X', 'Y']}},"
        + "{'name': 'x', 'type': {'type': 'fixed', 'name': 'other.F', 'size': 2}},"
        + "{'name': 'next', 'type': ['null', 'R', 'E', 'other.F']}]}";

    private void avro() throws IOException {
        Schema schema = new Schema.Parser().parse(SCHEMA.replace('\'', '"'));
        Schema symbols = schema.getField("e").schema();
        Schema fixed = schema.getField("x").schema();
        for (String codec : new String[] {"null", "deflate", "snappy", "bzip2"}) {
            DataFileWriter<Object> writer = new DataFileWriter<>(new GenericDatumWriter<>(schema));
            writer.setCodec(CodecFactory.fromString(codec));
            try (DataFileWriter<Object> file = writer.create(schema, new File(directory, codec + ".avro"))) {
                Object next = null;
                for (int record = 0; record < 60; record++) {
                    GenericData.Record value = new GenericData.Record(schema);
                    value.put("b", record % 2 == 0);
                    value.put("i", -record * 77);
                    value.put("l", (1L << 60) - record);
                    value.put("f", record % 7 == 0 ? Float.NaN : record / 3f);
                    // Older versions of Java print some numbers with more digits than they need.
                    value.put("d", record % 5 == 0 ? 1e10 * record : record % 5 == 1 ? 1.5e-7 : record / 8.0);
                    value.put("s", record % 3 == 0 ? null : "text \"" + record + "\"\n\u0001\u007f\u00e9\\");
                    value.put("y", ByteBuffer.wrap(new byte[] {(byte) record, (byte) 200, 'a'}));
                    value.put("a", record % 4 == 0 ? Collections.emptyList() : Arrays.asList(1.5, -record * 1.0));
                    value.put("m", record % 2 == 0 ? Collections.emptyMap()
                        : Collections.singletonMap("k" + record, record % 3 == 0 ? (Object) record : "v"));
                    value.put("e", new GenericData.EnumSymbol(symbols, record % 2 == 0 ? "X" : "Y"));
                    value.put("x", new GenericData.Fixed(fixed, new byte[] {(byte) record, 'z'}));
                    value.put("next", next);
                    file.append(value);
                    next = record % 10 == 0 ? value : record % 10 == 1 ? value.get("e") : record % 10 == 2 ? value.get("x") : null;
                    if (record % 25 == 24) {
                        file.sync();
                    }
                }
            }
        }
        Schema string = new Schema.Parser().parse("\"string\"");
        DataFileWriter<Object> texts = new DataFileWriter<>(new GenericDatumWriter<>(string));
        try (DataFileWriter<Object> file = texts.create(string, new File(directory, "strings.avro"))) {
            file.append("one");
            file.append("two");
        }
        DataFileWriter<Object> none = new DataFileWriter<>(new GenericDatumWriter<>(string));
        none.create(string, new File(directory, "none.avro")).close();
    }
}
