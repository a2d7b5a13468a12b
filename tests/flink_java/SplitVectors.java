import io.debezium.relational.TableId;
import java.util.*;
import org.apache.flink.cdc.connectors.mysql.source.offset.BinlogOffset;
import org.apache.flink.cdc.connectors.mysql.source.split.*;
import org.apache.flink.connector.pulsar.source.enumerator.PulsarSourceEnumState;
import org.apache.flink.connector.pulsar.source.enumerator.PulsarSourceEnumStateSerializer;
import org.apache.flink.connector.pulsar.source.enumerator.cursor.StopCursor;
import org.apache.flink.connector.pulsar.source.enumerator.topic.TopicPartition;
import org.apache.flink.connector.pulsar.source.enumerator.topic.TopicRange;
import org.apache.flink.connector.pulsar.source.split.*;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.types.logical.RowType;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.client.api.transaction.TxnID;

/**
 * Writes splits, and an enumerator, with the connectors' own serializers, for tests/data/flink/splits.jsonl: name, version and bytes a line.
 * Needs flink-connector-pulsar 4.1.0-1.18, flink-connector-mysql-cdc 3.2.0 and Flink's table API.
 */
public class SplitVectors {
  static void print(String name, int version, byte[] bytes) {
    StringBuilder hex = new StringBuilder();
    for (byte b : bytes) {
      hex.append(String.format("%02x", b));
    }
    System.out.println("{\"name\": \"" + name + "\", \"version\": " + version + ", \"hex\": \"" + hex + "\"}");
  }

  static void pulsar(String name, PulsarPartitionSplit split) throws Exception {
    PulsarPartitionSplitSerializer s = PulsarPartitionSplitSerializer.INSTANCE;
    print(name, s.getVersion(), s.serialize(split));
  }

  static void mysql(String name, MySqlSplit split) throws Exception {
    MySqlSplitSerializer s = MySqlSplitSerializer.INSTANCE;
    print(name, s.getVersion(), s.serialize(split));
  }

  public static void main(String[] a) throws Exception {
    TopicPartition partition = new TopicPartition("persistent://public/default/orders", 3);
    pulsar("pulsar-new", new PulsarPartitionSplit(partition, StopCursor.never()));
    MessageId message = new MessageIdImpl(1234, 56, 3);
    pulsar("pulsar-read", new PulsarPartitionSplit(partition, StopCursor.atEventTime(7), message, new TxnID(1, 2)));
    pulsar(
        "pulsar-whole",
        new PulsarPartitionSplit(
            new TopicPartition("orders", -1, Arrays.asList(new TopicRange(0, 99), new TopicRange(200, 300))),
            StopCursor.latest(),
            message,
            null));

    PulsarSourceEnumStateSerializer enumerators = PulsarSourceEnumStateSerializer.INSTANCE;
    Set<TopicPartition> met = new LinkedHashSet<>();
    met.add(partition);
    met.add(new TopicPartition("orders", -1, Arrays.asList(new TopicRange(0, 99), new TopicRange(200, 300))));
    print("pulsar-enumerator", enumerators.getVersion(), enumerators.serialize(new PulsarSourceEnumState(met)));

    TableId table = TableId.parse("shop.orders");
    RowType key = (RowType) DataTypes.ROW(DataTypes.FIELD("id", DataTypes.BIGINT())).getLogicalType();
    mysql(
        "mysql-snapshot",
        new MySqlSnapshotSplit(
            table, "shop.orders:4", key, new Object[] {100L}, new Object[] {200L}, null, new HashMap<>()));
    mysql(
        "mysql-snapshot-read",
        new MySqlSnapshotSplit(
            table, "shop.orders:5", key, null, null, BinlogOffset.ofBinlogFilePosition("mysql-bin.000003", 4567L),
            new HashMap<>()));
    mysql(
        "mysql-log",
        new MySqlBinlogSplit(
            "binlog-split",
            BinlogOffset.ofBinlogFilePosition("mysql-bin.000007", 154L),
            BinlogOffset.ofNonStopping(),
            Arrays.asList(
                new FinishedSnapshotSplitInfo(
                    table, "shop.orders:4", new Object[] {100L}, new Object[] {200L},
                    BinlogOffset.ofBinlogFilePosition("mysql-bin.000003", 4567L))),
            new HashMap<>(),
            1));
    mysql(
        "mysql-log-start",
        new MySqlBinlogSplit(
            "binlog-split", BinlogOffset.ofEarliest(), BinlogOffset.ofBinlogFilePosition("mysql-bin.000009", 1L),
            new ArrayList<>(), new HashMap<>(), 0));
  }
}
