import java.io.File;
import java.lang.reflect.Method;
import java.net.URL;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.util.VersionInfo;

/**
 * Writes and reads a file with Spark's Hadoop, and looks at the methods of the classes of Hearth's jar, as frameworks do by
 * reflection. Argument: the path. Prints what it has found as lines `= NAME: VALUE`.
 */
public final class Methods {
    /** The jar makes streams of it only where Hadoop has the type that its methods name. */
    private static final String NEWER = "io/hearth/hdfs/VectoredInputStream.class";

    public static void main(String[] arguments) throws Exception {
        Path path = new Path(arguments[0]);
        byte[] content = new byte[100_003];
        say("hadoop", VersionInfo.getVersion());
        URL place;
        try (FileSystem fs = FileSystem.newInstance(path.toUri(), new HdfsConfiguration())) {
            place = fs.getClass().getProtectionDomain().getCodeSource().getLocation();
            try (FSDataOutputStream out = fs.create(path, true)) {
                out.write(content);
                say("written by", out.getWrappedStream().getClass().getSimpleName());
            }
            try (FSDataInputStream in = fs.open(path)) {
                in.readFully(0, content);
                say("read by", in.getWrappedStream().getClass().getSimpleName());
                in.getWrappedStream().getClass().getMethods();
            }
        }
        List<String> failures = new ArrayList<>();
        int classes = 0;
        try (JarFile jar = new JarFile(new File(place.toURI()))) {
            for (JarEntry entry : Collections.list(jar.entries())) {
                String name = entry.getName();
                if (name.startsWith("io/hearth/") && name.endsWith(".class") && !name.equals(NEWER)) {
                    classes++;
                    try {
                        lookAt(name.substring(0, name.length() - ".class".length()).replace('/', '.'));
                    } catch (LinkageError | TypeNotPresentException e) {
                        failures.add(name + ": " + e);
                    }
                }
            }
        }
        say("classes", classes > 30 ? "all" : classes);
        say("failures", failures);
    }

    private static void lookAt(String name) throws ClassNotFoundException {
        Class<?> type = Class.forName(name, false, Methods.class.getClassLoader());
        type.getMethods();
        type.getDeclaredConstructors();
        type.getDeclaredFields();
        for (Method method : type.getDeclaredMethods()) {
            // Names the parameters of types, too.
            method.toGenericString();
        }
    }

    private static void say(String name, Object value) {
        System.out.println("= " + name + ": " + value);
    }
}
