import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The reviews service: what two reviewers think of a book and, from version 2 on, how many stars
 * the ratings service has for them. One file, only the JDK: {@code java Reviews.java} runs it.
 *
 * <ul>
 *   <li>PORT: where to listen, 9080 unless set
 *   <li>ENABLE_RATINGS: true asks the ratings service (versions 2 and 3); false (default) does not
 *   <li>STAR_COLOR: black (default) or red; with black stars ratings may take 10 s, else 2.5 s
 *   <li>RATINGS_HOSTNAME, RATINGS_SERVICE_PORT: where ratings is, ratings:9080 unless set
 *   <li>POD_NAME: said in each answer, so that one sees which version gave it
 *   <li>ACCESS_LOG: 1 (default) logs a line per request to stderr; 0 logs nothing
 * </ul>
 */
public final class Reviews {
  /** Headers that tie the calls of one request together, and the user it is for. */
  private static final List<String> FORWARDED =
      List.of(
          "x-request-id",
          "x-b3-traceid",
          "x-b3-spanid",
          "x-b3-parentspanid",
          "x-b3-sampled",
          "x-b3-flags",
          "b3",
          "traceparent",
          "tracestate",
          "baggage",
          "x-ot-span-context",
          "x-cloud-trace-context",
          "grpc-trace-bin",
          "sw8",
          "end-user",
          "user-agent",
          "authorization");

  private static final Pattern REVIEWS = Pattern.compile("/reviews/(\\d{1,9})");
  private static final Pattern STARS = Pattern.compile("\"(Reviewer[12])\"\\s*:\\s*(\\d+)");

  private final boolean withRatings = flag("ENABLE_RATINGS");
  private final String color = setting("STAR_COLOR", "black");
  private final boolean accessLog = !setting("ACCESS_LOG", "1").equals("0");
  private final String podName = setting("POD_NAME", setting("HOSTNAME", "reviews"));
  private final String ratings =
      "http://" + setting("RATINGS_HOSTNAME", "ratings") + ":" + setting("RATINGS_SERVICE_PORT", "9080");
  private final Duration patience = Duration.ofMillis(color.equals("black") ? 10_000 : 2_500);
  // HTTP/1.1 by name: the client would otherwise try to upgrade every plaintext connection.
  private final HttpClient client =
      HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(patience).build();

  private Reviews() {
    if (!color.matches("[a-z]{1,20}")) {
      throw new IllegalArgumentException("STAR_COLOR=" + color + ": must be the name of a colour");
    }
  }

  public static void main(String[] args) {
    // The JDK's server writes head and body apart and leaves Nagle's algorithm on by default.
    System.setProperty("sun.net.httpserver.nodelay", "true");
    // Clients' pools close idle connections; the server should not get there first.
    System.setProperty("sun.net.httpserver.idleInterval", "75");
    try {
      new Reviews().serve(Integer.parseInt(setting("PORT", "9080")));
    } catch (IOException | IllegalArgumentException error) {
      System.err.println("reviews: " + error.getMessage());
      Runtime.getRuntime().halt(1);
    }
  }

  private void serve(int port) throws IOException {
    HttpServer server = HttpServer.create(new InetSocketAddress("0.0.0.0", port), 1024);
    server.setExecutor(Executors.newFixedThreadPool(16));
    server.createContext("/", this::answer);
    // Told to stop: finish what is under way, then leave with success rather than with 143.
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> {
                  server.stop(1);
                  Runtime.getRuntime().halt(0);
                }));
    server.start();
  }

  private void answer(HttpExchange exchange) throws IOException {
    try (exchange) {
      String path = exchange.getRequestURI().getPath();
      Matcher reviews = REVIEWS.matcher(path);
      if (!exchange.getRequestMethod().equals("GET")) {
        respond(exchange, 405, error("only GET"));
      } else if (path.equals("/health")) {
        respond(exchange, 200, "{\"status\": \"reviews is healthy\"}");
      } else if (reviews.matches()) {
        respond(exchange, 200, reviews(reviews.group(1), exchange));
      } else if (path.startsWith("/reviews/")) {
        respond(exchange, 400, error("the product id must be a number"));
      } else {
        respond(exchange, 404, error("not found"));
      }
    }
  }

  private String reviews(String id, HttpExchange exchange) {
    String first = "";
    String second = "";
    if (withRatings) {
      try {
        String found = fetchRatings(id, exchange);
        first = ", " + stars(found, "Reviewer1");
        second = ", " + stars(found, "Reviewer2");
      } catch (IOException error) {
        first = ", \"rating\": " + error("ratings is not available");
        second = first;
      }
    }
    return "{\"id\": \"%s\", \"podname\": \"%s\", \"reviews\": [%s, %s]}"
        .formatted(
            id,
            podName.replaceAll("[^A-Za-z0-9.-]", ""),
            review("Reviewer1", "Two pairs of twins, one day, and nobody who asks the right question. I laughed all the way.", first),
            review("Reviewer2", "Short and quick, but after the third beating of a wrong servant I had got the joke.", second));
  }

  private String fetchRatings(String id, HttpExchange exchange) throws IOException {
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(ratings + "/ratings/" + id)).timeout(patience);
    for (String name : FORWARDED) {
      String value = exchange.getRequestHeaders().getFirst(name);
      if (value != null) {
        request.setHeader(name, value);
      }
    }
    try {
      HttpResponse<String> response = client.send(request.build(), HttpResponse.BodyHandlers.ofString());
      if (response.statusCode() != 200) {
        throw new IOException("ratings answered " + response.statusCode());
      }
      return response.body();
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new IOException(interrupted);
    }
  }

  private String stars(String found, String reviewer) {
    Matcher stars = STARS.matcher(found);
    while (stars.find()) {
      if (stars.group(1).equals(reviewer)) {
        return "\"rating\": {\"stars\": %s, \"color\": \"%s\"}".formatted(stars.group(2), color);
      }
    }
    return "\"rating\": " + error("not rated");
  }

  private static String review(String reviewer, String text, String rating) {
    return "{\"reviewer\": \"%s\", \"text\": \"%s\"%s}".formatted(reviewer, text, rating);
  }

  private static String error(String message) {
    return "{\"error\": \"%s\"}".formatted(message);
  }

  private void respond(HttpExchange exchange, int status, String json) throws IOException {
    byte[] body = json.getBytes(StandardCharsets.UTF_8);
    exchange.getResponseHeaders().set("Content-Type", "application/json");
    exchange.sendResponseHeaders(status, body.length);
    exchange.getResponseBody().write(body);
    if (accessLog) {
      System.err.println(exchange.getRequestMethod() + " " + exchange.getRequestURI() + " " + status);
    }
  }

  private static boolean flag(String name) {
    String value = setting(name, "false");
    if (!value.equals("true") && !value.equals("false")) {
      throw new IllegalArgumentException(name + "=" + value + ": must be true or false");
    }
    return value.equals("true");
  }

  private static String setting(String name, String fallback) {
    String value = System.getenv(name);
    return value == null || value.isEmpty() ? fallback : value;
  }
}
