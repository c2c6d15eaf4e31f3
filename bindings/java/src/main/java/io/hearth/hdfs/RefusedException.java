package io.hearth.hdfs;

import java.io.FileNotFoundException;
import java.io.IOException;
import org.apache.hadoop.hdfs.protocol.DSQuotaExceededException;
import org.apache.hadoop.hdfs.protocol.NSQuotaExceededException;
import org.apache.hadoop.hdfs.protocol.QuotaByStorageTypeExceededException;
import org.apache.hadoop.hdfs.protocol.UnresolvedPathException;
import org.apache.hadoop.ipc.RemoteException;
import org.apache.hadoop.security.AccessControlException;

/** The NameNode answered a call of the native client with an exception. Created by the native library. */
final class RefusedException extends IOException {
    private static final long serialVersionUID = 1L;

    private final String remoteClass;

    /**
     * Called by the native library.
     *
     * @param text class name of the NameNode's exception, a line end, and its message
     */
    RefusedException(String text) {
        super(text.substring(text.indexOf('\n') + 1));
        this.remoteClass = text.substring(0, Math.max(0, text.indexOf('\n')));
    }

    /** Returns the refusal that caused a failure; null if that had another cause. */
    static RefusedException in(Throwable failure) {
        Throwable cause = failure;
        while (cause != null && !(cause instanceof RefusedException)) {
            cause = cause.getCause();
        }
        return (RefusedException) cause;
    }

    /** Returns the full class name of the NameNode's exception. */
    String remoteClass() {
        return remoteClass;
    }

    /** Returns the exception as Hadoop's streams throw it when the NameNode refuses to close a file. */
    RemoteException remote() {
        RemoteException remote = new RemoteException(remoteClass, getMessage());
        remote.initCause(this);
        return remote;
    }

    /** Returns the exception as Hadoop's streams throw it when the NameNode refuses to allocate a block. */
    IOException unwrapped() {
        return remote().unwrapRemoteException(FileNotFoundException.class, AccessControlException.class,
                NSQuotaExceededException.class, DSQuotaExceededException.class,
                QuotaByStorageTypeExceededException.class, UnresolvedPathException.class);
    }
}
