import org.apache.hadoop.net.StandardSocketFactory;

/** A socket factory of a program's own, which connects as Hadoop's. */
public final class OwnSocketFactory extends StandardSocketFactory {}
