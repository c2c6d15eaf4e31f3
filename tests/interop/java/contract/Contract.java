package hearth.contract;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.security.UserGroupInformation;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs the JUnit classes that are named as arguments, one after the other. Reports each test on standard output,
 * separated by tabs: {@code RESULT class test pass|skip|fail milliseconds why}.
 */
public final class Contract {
    private Contract() {
    }

    public static void main(String[] classes) throws Exception {
        PrintStream out = System.out;
        unpack(new File("test-data"));
        // Output of the tests must not be mixed with the results.
        System.setOut(System.err);
        for (String name : classes) {
            JUnitCore core = new JUnitCore();
            core.addListener(new Listener(name.substring(name.lastIndexOf('.') + 1), out));
            core.run(Class.forName(name));
            // Some tests change the current user.
            UserGroupInformation.reset();
        }
        out.flush();
        // Threads of clients may still be waiting.
        Runtime.getRuntime().halt(0);
    }

    /** Unpacks the files that Apache's tests expect in the directory of this property, from the tests' jar. */
    private static void unpack(File directory) throws IOException {
        String[] names = {
            "testAclCLIWithPosixAclInheritance.xml", "testXAttrConf.xml", "testHDFSConf.xml", "testDeleteConf.xml", "testCacheAdminConf.xml",
            "data15bytes", "data30bytes", "data60bytes", "data120bytes", "data1k",
        };
        Files.createDirectories(directory.toPath());
        for (String name : names) {
            try (InputStream in = Contract.class.getResourceAsStream("/" + name)) {
                if (in != null) {
                    Files.copy(in, new File(directory, name).toPath(), StandardCopyOption.REPLACE_EXISTING);
                }
            }
        }
        System.setProperty("test.cache.data", directory.getAbsolutePath());
        System.setProperty("test.build.data", new File("test-build").getAbsolutePath());
    }

    private static final class Listener extends RunListener {
        private final String className;
        private final PrintStream out;
        private final Map<String, Failure> failures = new HashMap<>();
        private final Map<String, Failure> skipped = new HashMap<>();
        private long started;

        Listener(String className, PrintStream out) {
            this.className = className;
            this.out = out;
        }

        private static String name(Description test) {
            // A failure before or after all tests of a class has no method.
            return test.getMethodName() == null ? "(class)" : test.getMethodName();
        }

        @Override
        public void testStarted(Description test) {
            started = System.nanoTime();
            System.err.println("== " + className + " " + name(test));
        }

        @Override
        public void testFailure(Failure failure) {
            failures.putIfAbsent(name(failure.getDescription()), failure);
            try {
                MiniDFSCluster.mendRoot();
            } catch (IOException e) {
                e.printStackTrace();
            }
            if (failure.getDescription().getMethodName() == null) {
                say("(class)", "fail", failure);
            }
        }

        @Override
        public void testAssumptionFailure(Failure failure) {
            skipped.put(name(failure.getDescription()), failure);
        }

        @Override
        public void testIgnored(Description test) {
            say(name(test), "skip", null);
        }

        @Override
        public void testFinished(Description test) {
            String name = name(test);
            if (failures.containsKey(name)) {
                say(name, "fail", failures.get(name));
            } else if (skipped.containsKey(name)) {
                say(name, "skip", skipped.get(name));
            } else {
                say(name, "pass", null);
            }
        }

        private void say(String name, String outcome, Failure failure) {
            long ms = (System.nanoTime() - started) / 1_000_000;
            String why = "";
            if (failure != null) {
                Throwable thrown = failure.getException();
                why = String.valueOf(thrown).replaceAll("\\s+", " ");
                StringWriter trace = new StringWriter();
                thrown.printStackTrace(new PrintWriter(trace));
                System.err.println(trace);
            }
            out.println(String.join("\t", "RESULT", className, name.replace('\t', ' '), outcome, Long.toString(ms), why));
            out.flush();
        }
    }
}
