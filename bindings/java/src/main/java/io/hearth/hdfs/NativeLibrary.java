package io.hearth.hdfs;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import java.util.UUID;

/**
 * Loads the native library out of this class's own jar.
 *
 * <p>Each class loader gets a library of its own, because the JVM ties a library to one loader: so two versions of the
 * jar in one JVM do not mix. Without a configured directory, the library is written to a new directory that only this
 * user can access, and is removed as soon as it is loaded. In a configured directory it stays, under a name with its
 * version and content, and the next JVM loads the same file.
 */
final class NativeLibrary {
    /** Directory for the library. Needed where the temporary directory is mounted noexec. */
    static final String DIRECTORY_KEY = "hearth.java.native.dir";

    private static final String NAME = "libhearth_java";
    private static boolean tried;
    private static String failure;

    private NativeLibrary() {
    }

    /**
     * Loads the library, unless an earlier call did.
     *
     * @param directory where to keep the library, or null
     * @return null, or the reason why the library cannot be used
     */
    static synchronized String load(String directory) {
        if (!tried) {
            tried = true;
            try {
                loadOnce(directory);
            } catch (IOException | LinkageError | RuntimeException e) {
                failure = "its native library cannot be loaded: " + e.getMessage();
            }
        }
        return failure;
    }

    private static void loadOnce(String directory) throws IOException {
        String platform = platform();
        byte[] library = resource(platform + "/" + NAME + ".so");
        if (library == null) {
            throw new IOException("this jar has none for " + platform);
        }
        String version = version();
        if (directory == null || directory.isEmpty()) {
            loadOnceFrom(library, version);
        } else {
            loadKept(library, version, Paths.get(directory));
        }
        String loaded = new String(Native.version(), StandardCharsets.UTF_8);
        if (!loaded.equals(version)) {
            throw new IOException("it has version " + loaded + " instead of " + version);
        }
    }

    /** Writes the library to a file of its own, and removes the file at once: the JVM has it in memory by then. */
    private static void loadOnceFrom(byte[] library, String version) throws IOException {
        Path directory = Files.createTempDirectory("hearth-java-");
        Path file = directory.resolve(NAME + "-" + version + ".so");
        try {
            Files.write(file, library);
            load(file);
        } finally {
            Files.deleteIfExists(file);
            Files.deleteIfExists(directory);
        }
    }

    private static void loadKept(byte[] library, String version, Path directory) throws IOException {
        Files.createDirectories(directory);
        Path file = directory.resolve(NAME + "-" + version + "-" + digest(library) + ".so");
        if (!Files.isRegularFile(file) || !Arrays.equals(Files.readAllBytes(file), library)) {
            write(library, file);
        }
        try {
            load(file);
        } catch (UnsatisfiedLinkError e) {
            if (!String.valueOf(e.getMessage()).contains("already loaded in another classloader")) {
                throw e;
            }
            Path copy = directory.resolve(NAME + "-" + version + "-" + UUID.randomUUID() + ".so");
            try {
                Files.write(copy, library);
                load(copy);
            } finally {
                Files.deleteIfExists(copy);
            }
        }
    }

    /** In one step: other JVMs never see an incomplete file, and one that has the old file loaded keeps it. */
    private static void write(byte[] library, Path file) throws IOException {
        Path part = file.resolveSibling(file.getFileName() + "." + UUID.randomUUID());
        try {
            Files.write(part, library);
            Files.move(part, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
        } finally {
            Files.deleteIfExists(part);
        }
    }

    private static void load(Path file) {
        try {
            System.load(file.toAbsolutePath().toString());
        } catch (UnsatisfiedLinkError e) {
            if (String.valueOf(e.getMessage()).contains("failed to map segment")) {
                UnsatisfiedLinkError error = new UnsatisfiedLinkError(e.getMessage() + "; if the directory is mounted noexec, set "
                        + DIRECTORY_KEY + " to one that is not");
                error.initCause(e);
                throw error;
            }
            throw e;
        }
    }

    /** Returns the platform as the jar names it, such as linux-x86_64. */
    private static String platform() {
        String system = System.getProperty("os.name", "").toLowerCase(Locale.ROOT);
        String machine = System.getProperty("os.arch", "").toLowerCase(Locale.ROOT);
        if (machine.equals("amd64")) {
            machine = "x86_64";
        }
        return system + "-" + machine;
    }

    private static String version() throws IOException {
        Properties properties = new Properties();
        try (InputStream in = NativeLibrary.class.getResourceAsStream("hearth.properties")) {
            if (in == null) {
                throw new IOException("this jar has no hearth.properties");
            }
            properties.load(in);
        }
        return properties.getProperty("version", "unknown");
    }

    private static byte[] resource(String name) throws IOException {
        try (InputStream in = NativeLibrary.class.getResourceAsStream(name)) {
            if (in == null) {
                return null;
            }
            ByteArrayOutputStream all = new ByteArrayOutputStream(4 << 20);
            byte[] piece = new byte[1 << 16];
            for (int got; (got = in.read(piece)) > 0; ) {
                all.write(piece, 0, got);
            }
            return all.toByteArray();
        }
    }

    private static String digest(byte[] bytes) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(bytes);
            StringBuilder text = new StringBuilder();
            for (int i = 0; i < 8; i++) {
                text.append(String.format(Locale.ROOT, "%02x", digest[i]));
            }
            return text.toString();
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every JVM has SHA-256", e);
        }
    }
}
