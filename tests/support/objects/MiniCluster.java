import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** An HDFS of one NameNode and two DataNodes: FOLDER, RPC-PORT, HTTP-PORT. It makes the file FOLDER/ready, and stays. */
public class MiniCluster {
    public static void main(String[] arguments) throws Exception {
        Configuration conf = new Configuration();
        conf.set("hdfs.minidfs.basedir", arguments[0] + "/dfs");
        conf.set("dfs.replication", "1");
        // A DataNode that closes a file before the NameNode has heard of its block waits this long and asks again:
        // 400 ms by default, at nearly every file.
        conf.set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", "10");
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf)
            .nameNodePort(Integer.parseInt(arguments[1]))
            .nameNodeHttpPort(Integer.parseInt(arguments[2]))
            .numDataNodes(2)
            .build();
        cluster.waitActive();
        Files.createFile(Path.of(arguments[0], "ready"));
        Thread.currentThread().join();
    }
}
