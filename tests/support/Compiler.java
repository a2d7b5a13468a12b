import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;

/**
 * Compiles what each line of its stdin says, arguments of javac parted by tabs, until that ends. For each it prints a
 * line: javac's exit code, and in Base64 what it has to say.
 */
public class Compiler {
  public static void main(String[] a) throws Exception {
    JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      ByteArrayOutputStream messages = new ByteArrayOutputStream();
      int code = compiler.run(null, messages, messages, line.split("\t"));
      System.out.println(code + " " + Base64.getEncoder().encodeToString(messages.toByteArray()));
      System.out.flush();
    }
  }
}
