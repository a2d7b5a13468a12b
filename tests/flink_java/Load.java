import java.io.DataInputStream;
import java.io.IOException;
import org.apache.flink.core.fs.FSDataInputStream;
import org.apache.flink.runtime.checkpoint.Checkpoints;
import org.apache.flink.runtime.checkpoint.OperatorState;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.runtime.checkpoint.metadata.CheckpointMetadata;
import org.apache.flink.runtime.state.CompletedCheckpointStorageLocation;
import org.apache.flink.runtime.state.IncrementalKeyedStateHandle.HandleAndLocalPath;
import org.apache.flink.runtime.state.IncrementalRemoteKeyedStateHandle;
import org.apache.flink.runtime.state.KeyGroupsStateHandle;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.OperatorStateHandle;
import org.apache.flink.runtime.state.StateObject;
import org.apache.flink.runtime.state.StreamStateHandle;
import org.apache.flink.runtime.state.filesystem.AbstractFsCheckpointStorageAccess;

/** Loads each snapshot with Flink's own loader and reads every stream to its end: a line `OK streams bytes` or `FAIL`. */
public class Load {
    static long bytes;
    static int streams;

    static void open(StreamStateHandle handle) throws IOException {
        if (handle == null) {
            return;
        }
        long length = 0;
        try (FSDataInputStream in = handle.openInputStream()) {
            byte[] buffer = new byte[1 << 16];
            for (int n; (n = in.read(buffer)) > 0; ) {
                length += n;
            }
        }
        if (length != handle.getStateSize()) {
            throw new IOException("has " + length + " bytes, not " + handle.getStateSize());
        }
        bytes += length;
        streams++;
    }

    static void keyed(KeyedStateHandle handle) throws IOException {
        if (handle instanceof KeyGroupsStateHandle) {
            open(((KeyGroupsStateHandle) handle).getDelegateStateHandle());
        } else if (handle instanceof IncrementalRemoteKeyedStateHandle) {
            IncrementalRemoteKeyedStateHandle files = (IncrementalRemoteKeyedStateHandle) handle;
            open(files.getMetaDataStateHandle());
            for (HandleAndLocalPath file : files.getSharedState()) {
                open(file.getHandle());
            }
            for (HandleAndLocalPath file : files.getPrivateState()) {
                open(file.getHandle());
            }
        }
    }

    static void channel(StateObject handle) throws Exception {
        open((StreamStateHandle) handle.getClass().getMethod("getDelegate").invoke(handle));
    }

    public static void main(String[] directories) {
        for (String directory : directories) {
            bytes = 0;
            streams = 0;
            try {
                CompletedCheckpointStorageLocation where =
                        AbstractFsCheckpointStorageAccess.resolveCheckpointPointer(directory);
                CheckpointMetadata metadata;
                try (DataInputStream in = new DataInputStream(where.getMetadataHandle().openInputStream())) {
                    metadata = Checkpoints.loadCheckpointMetadata(in, Load.class.getClassLoader(), directory);
                }
                for (OperatorState operator : metadata.getOperatorStates()) {
                    for (OperatorSubtaskState subtask : operator.getStates()) {
                        for (OperatorStateHandle handle : subtask.getManagedOperatorState()) {
                            open(handle.getDelegateStateHandle());
                        }
                        for (KeyedStateHandle handle : subtask.getManagedKeyedState()) {
                            keyed(handle);
                        }
                        for (StateObject handle : subtask.getInputChannelState()) {
                            channel(handle);
                        }
                        for (StateObject handle : subtask.getResultSubpartitionState()) {
                            channel(handle);
                        }
                    }
                }
                System.out.println("OK " + streams + " " + bytes + " " + metadata.getCheckpointProperties());
            } catch (Throwable error) {
                System.out.println("FAIL " + error);
            }
        }
    }
}
