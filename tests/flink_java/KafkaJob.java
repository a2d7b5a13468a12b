import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Reads a topic of Kafka and writes what it read to another, in transactions, and to files: `RECORD partition n` a line.
 * With `make` it makes the topics first, and sends 300 records to each of the three partitions.
 *
 * <p>Arguments: HOST:PORT, a folder for checkpoints and files, milliseconds that a record takes, `make` or `go on`, then
 * options of Flink as key=value. Needs flink-connector-kafka on the class path.
 */
public class KafkaJob {
  static final int PARTITIONS = 3;
  static final int RECORDS = 300;

  static class Slow implements MapFunction<String, String> {
    final long millis;

    Slow(long millis) {
      this.millis = millis;
    }

    @Override
    public String map(String record) throws Exception {
      Thread.sleep(millis);
      System.out.println("RECORD " + record);
      return record;
    }
  }

  static void make(String servers) throws Exception {
    Properties p = new Properties();
    p.put("bootstrap.servers", servers);
    try (Admin admin = Admin.create(p)) {
      admin.createTopics(Arrays.asList(new NewTopic("orders", PARTITIONS, (short) 1), new NewTopic("out", 1, (short) 1)))
          .all()
          .get();
    }
    try (KafkaProducer<String, String> producer =
        new KafkaProducer<>(p, new StringSerializer(), new StringSerializer())) {
      for (int i = 0; i < RECORDS; i++) {
        for (int partition = 0; partition < PARTITIONS; partition++) {
          producer.send(new ProducerRecord<>("orders", partition, null, partition + " " + i));
        }
      }
      producer.flush();
    }
  }

  public static void main(String[] a) throws Exception {
    if (a[3].equals("make")) {
      make(a[0]);
    }
    Configuration c = Local.options(a, 4);
    Local.keepCheckpoints(c, a[1] + "/ck", "400ms", 3);
    c.setString("restart-strategy.type", "none");
    StreamExecutionEnvironment e = StreamExecutionEnvironment.createLocalEnvironment(2, c);
    KafkaSource<String> source =
        KafkaSource.<String>builder()
            .setBootstrapServers(a[0])
            .setTopics("orders")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.offsets(stops()))
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
    KafkaSink<String> topic =
        KafkaSink.<String>builder()
            .setBootstrapServers(a[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("abs")
            .setProperty("transaction.timeout.ms", "600000")
            .setRecordSerializer(
                KafkaRecordSerializationSchema.<String>builder()
                    .setTopic("out")
                    .setValueSerializationSchema(new SimpleStringSchema())
                    .build())
            .build();
    FileSink<String> files =
        FileSink.forRowFormat(new Path("file://" + a[1] + "/files"), new SimpleStringEncoder<String>("UTF-8"))
            .withRollingPolicy(OnCheckpointRollingPolicy.build())
            .build();
    DataStream<String> records =
        e.fromSource(source, WatermarkStrategy.noWatermarks(), "orders")
            .uid("orders")
            .map(new Slow(Long.parseLong(a[2])))
            .uid("slow");
    records.sinkTo(topic).uid("topic");
    records.sinkTo(files).uid("files");
    e.execute("kafka");
    System.exit(0);
  }

  static Map<org.apache.kafka.common.TopicPartition, Long> stops() {
    Map<org.apache.kafka.common.TopicPartition, Long> stops = new HashMap<>();
    for (int i = 0; i < PARTITIONS; i++) {
      stops.put(new org.apache.kafka.common.TopicPartition("orders", i), (long) RECORDS);
    }
    return stops;
  }
}
