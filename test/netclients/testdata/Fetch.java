import java.net.URI;
import java.net.http.*;

// Prints what is at a URL, by Java's own client.
class Fetch {
	public static void main(String[] args) throws Exception {
		System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(args[0])).build(),
			HttpResponse.BodyHandlers.ofString()).body());
	}
}
