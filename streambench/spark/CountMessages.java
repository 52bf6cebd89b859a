package streambench;

import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.api.java.UDF2;
import org.apache.spark.util.LongAccumulator;

/**
 * Adds the messages of containers to the accumulator "messages" and to the input records of their tasks.
 *
 * Each row says how many messages are new. Those that hold a report are kept. One object counts one round.
 * "python -m tests.spark.counting --write" puts it into count_messages.jar.
 */
public final class CountMessages implements UDF2<Long, Boolean, Boolean> {
    private static final long serialVersionUID = 1L;

    private final LongAccumulator messages = SparkContext.getOrCreate().longAccumulator("messages");
    private transient boolean hasBegun;

    @Override
    public Boolean call(Long more, Boolean isReport) {
        messages.add(more);
        try {
            // Spark has counted the row that names the container.
            TaskContext.get().taskMetrics().inputMetrics().incRecordsRead(hasBegun ? more : more - 1);
        } catch (LinkageError error) {
            // The accumulator is promised, and input records are an addition to it.
        }
        hasBegun = true;
        return isReport;
    }
}
