package io.hearth.hdfs;

import java.io.IOException;
import java.lang.ref.WeakReference;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.security.token.Token;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Hearth's DataNodes on this machine, as one configuration reaches them. Configurations with the same settings share one
 * cache of open replicas.
 */
final class LocalDataNodes {
    /** True: where the local path cannot be used at all, reads fail with the reason instead of taking another path. */
    static final String REQUIRED_KEY = "hearth.java.required";

    static final Logger LOG = LoggerFactory.getLogger("io.hearth.hdfs");

    /** Keys that the native library reads. */
    private static final String[] KEYS = {
        "dfs.domain.socket.path",
        "dfs.domain.socket.disable.interval.seconds",
        "dfs.client.read.shortcircuit.streams.cache.size",
        "dfs.client.read.shortcircuit.streams.cache.expiry.ms",
        "dfs.client.socketcache.expiryMsec",
        "dfs.client.socket-timeout",
        MappedMemory.KEY,
    };

    /** Bounds of the two tables whose entries are never removed. More are not served locally. */
    private static final int SETTINGS_MAX = 64;
    private static final int POOLS_MAX = 1024;

    private static final Map<Configuration, LocalDataNodes> BY_CONFIGURATION = new WeakHashMap<>();
    private static final Map<String, LocalDataNodes> BY_SETTINGS = new HashMap<>();
    private static volatile Last last = new Last(null, null);

    /** Reason why no replica can be read locally; null if it can be tried. */
    private final String unusable;
    private final boolean required;
    private final long blocks;
    private final ConcurrentMap<String, Long> pools = new ConcurrentHashMap<>();
    private final AtomicBoolean reported = new AtomicBoolean();
    private final String socket;

    /** The latest answer of {@link #of}: most programs have one configuration. */
    private static final class Last {
        final WeakReference<Configuration> configuration;
        final LocalDataNodes answer;

        Last(Configuration configuration, LocalDataNodes answer) {
            this.configuration = new WeakReference<>(configuration);
            this.answer = answer;
        }
    }

    /** Returns those of the configuration, whose later changes have no effect. */
    static LocalDataNodes of(Configuration configuration) {
        Last latest = last;
        if (latest.answer != null && latest.configuration.get() == configuration) {
            return latest.answer;
        }
        synchronized (BY_CONFIGURATION) {
            LocalDataNodes found = BY_CONFIGURATION.get(configuration);
            if (found == null) {
                found = made(configuration);
                BY_CONFIGURATION.put(configuration, found);
            }
            last = new Last(configuration, found);
            return found;
        }
    }

    private static LocalDataNodes made(Configuration configuration) {
        boolean required = configuration.getBoolean(REQUIRED_KEY, false);
        StringBuilder settings = new StringBuilder();
        for (String key : KEYS) {
            String value = configuration.getTrimmed(key);
            if (value != null) {
                settings.append(key).append('\0').append(value).append('\0');
            }
        }
        MappedMemory.appendDefault(settings, configuration);
        String name = required + "\0" + settings;
        LocalDataNodes found = BY_SETTINGS.get(name);
        if (found == null) {
            if (BY_SETTINGS.size() >= SETTINGS_MAX) {
                return new LocalDataNodes(null, null, required, "more than " + SETTINGS_MAX
                        + " different configurations are in use");
            }
            String directory = System.getProperty(NativeLibrary.DIRECTORY_KEY);
            if (directory == null) {
                directory = configuration.getTrimmed(NativeLibrary.DIRECTORY_KEY);
            }
            String socket = configuration.getTrimmed(KEYS[0], "");
            found = new LocalDataNodes(settings.toString(), socket, required, NativeLibrary.load(directory));
            BY_SETTINGS.put(name, found);
        }
        return found;
    }

    private LocalDataNodes(String settings, String socket, boolean required, String unusable) {
        long blocks = 0;
        if (unusable == null) {
            try {
                blocks = Native.connect(settings.getBytes(StandardCharsets.UTF_8));
            } catch (IOException | RuntimeException e) {
                unusable = e.getMessage();
            }
        }
        this.blocks = blocks;
        this.socket = socket;
        this.required = required;
        this.unusable = unusable;
        if (unusable != null) {
            reported.set(true);
            LOG.info("Hearth is not used, and blocks are read as without it: {}", unusable);
        }
    }

    /**
     * Opens the replica of a block on this machine.
     *
     * @param length number of bytes that will be read at most
     * @param token the block's access token as Hadoop serializes it
     * @return an open block for {@link Native}; 0 if there is none, or none is wanted
     * @throws RequiredException if the local path cannot be used at all, and the configuration demands it
     */
    long open(String pool, long id, long stamp, long length, byte[] token) throws IOException, RequiredException {
        if (unusable != null) {
            throwIfRequired(unusable);
            return 0;
        }
        long opener = pool(pool);
        if (opener == 0) {
            return 0;
        }
        long open = Native.cached(opener, id, stamp, length);
        if (open != 0) {
            return open;
        }
        Token<?> decoded = new Token<>();
        if (token != null) {
            decoded.readFields(new java.io.DataInputStream(new java.io.ByteArrayInputStream(token)));
        }
        open = Native.open(opener, id, stamp, length, decoded.getIdentifier(), decoded.getPassword(),
                bytes(decoded.getKind()), bytes(decoded.getService()));
        if (open == 0 && (required || !reported.get())) {
            if (Native.datanodes(blocks) == 0) {
                String reason = "no Hearth DataNode answers at dfs.domain.socket.path=" + socket;
                if (reported.compareAndSet(false, true)) {
                    LOG.info("Hearth is not used, and blocks are read as without it: {}", reason);
                }
                throwIfRequired(reason);
            }
        } else if (open != 0 && reported.compareAndSet(false, true)) {
            LOG.info("Hearth reads blocks of DataNodes on this machine from their memory (dfs.domain.socket.path={})", socket);
        }
        return open;
    }

    private void throwIfRequired(String reason) throws RequiredException {
        if (required) {
            throw new RequiredException(REQUIRED_KEY + " is true, but Hearth cannot be used: " + reason);
        }
    }

    private long pool(String id) {
        Long known = pools.get(id);
        if (known != null) {
            return known;
        }
        synchronized (pools) {
            known = pools.get(id);
            if (known == null) {
                if (pools.size() >= POOLS_MAX) {
                    return 0;
                }
                known = Native.pool(blocks, id.getBytes(StandardCharsets.UTF_8));
                pools.put(id, known);
            }
            return known;
        }
    }

    private static byte[] bytes(org.apache.hadoop.io.Text text) {
        return text.copyBytes();
    }

    /** The local path is required and cannot be used. */
    static final class RequiredException extends Exception {
        private static final long serialVersionUID = 1L;

        RequiredException(String message) {
            super(message);
        }
    }
}
