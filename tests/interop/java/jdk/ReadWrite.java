import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Random;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;

/**
 * Writes a file and reads it in several ways, on any Java from 8 on. Arguments: the path and the number of bytes. Prints
 * what it has found as lines `= NAME: VALUE`. Fails at the first wrong byte.
 */
public final class ReadWrite {
    public static void main(String[] arguments) throws Exception {
        Path path = new Path(arguments[0]);
        byte[] content = new byte[Integer.parseInt(arguments[1])];
        new Random(content.length).nextBytes(content);
        say("java", System.getProperty("java.version") + " " + System.getProperty("os.arch"));
        try (FileSystem fs = FileSystem.newInstance(new HdfsConfiguration())) {
            try (FSDataOutputStream out = fs.create(path, true)) {
                out.write(content);
            }
            try (FSDataInputStream in = fs.open(path)) {
                byte[] read = new byte[content.length];
                in.readFully(0, read);
                check("a positioned read", content, read);
                Arrays.fill(read, (byte) 0);
                in.readFully(read);
                check("a read in order", content, read);
                if (in.read() != -1) {
                    throw new IOException("the file is longer than " + content.length);
                }
                ByteBuffer direct = ByteBuffer.allocateDirect(content.length / 2);
                in.seek(content.length / 3);
                while (direct.hasRemaining()) {
                    if (in.read(direct) <= 0) {
                        throw new IOException("the file ends after " + direct.position() + " bytes of a direct buffer");
                    }
                }
                direct.flip();
                byte[] part = new byte[direct.remaining()];
                direct.get(part);
                int from = content.length / 3;
                check("a read into a direct buffer", Arrays.copyOfRange(content, from, from + part.length), part);
                say("by", in.getWrappedStream().getClass().getSimpleName());
                long local = ((HdfsDataInputStream) in).getReadStatistics().getTotalShortCircuitBytesRead();
                say("from memory", local == 2L * content.length + part.length ? "all" : local + " bytes");
            }
            if (!fs.delete(path, false)) {
                throw new IOException(path + " cannot be deleted");
            }
        }
        say("done", content.length);
    }

    private static void check(String what, byte[] expected, byte[] found) throws IOException {
        if (!Arrays.equals(expected, found)) {
            throw new IOException(what + " gave other bytes than were written");
        }
    }

    private static void say(String name, Object value) {
        System.out.println("= " + name + ": " + value);
    }
}
