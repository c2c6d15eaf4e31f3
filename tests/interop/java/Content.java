import java.io.IOException;
import java.io.OutputStream;
import java.security.MessageDigest;

/** Varied content computed from a seed and a position, the same as Rust's `hearth_testkit::Content`. */
final class Content {
    private static final long GAMMA = 0x9e3779b97f4a7c15L;
    private final long seed;

    Content(long seed) {
        this.seed = seed;
    }

    private long word(long index) {
        long z = seed + (index + 1) * GAMMA;
        z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
        z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
        return z ^ (z >>> 31);
    }

    void fill(long position, byte[] into, int length) {
        int done = 0;
        while (done < length) {
            long word = word((position + done) / 8);
            int skip = (int) ((position + done) % 8);
            word >>>= 8 * skip;
            for (int i = skip; i < 8 && done < length; i++) {
                into[done++] = (byte) word;
                word >>>= 8;
            }
        }
    }

    byte[] bytes(long position, int length) {
        byte[] bytes = new byte[length];
        fill(position, bytes, length);
        return bytes;
    }

    void writeTo(OutputStream out, long position, long length, int piece) throws IOException {
        byte[] buffer = new byte[piece];
        for (long done = 0; done < length; ) {
            int take = (int) Math.min(piece, length - done);
            fill(position + done, buffer, take);
            out.write(buffer, 0, take);
            done += take;
        }
    }

    static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte b : bytes) {
            text.append(String.format("%02x", b));
        }
        return text.toString();
    }

    static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (java.security.NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
