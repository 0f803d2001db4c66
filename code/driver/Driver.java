// Runs cells of Java, statement by statement as JShell does, and reports their results. code/cell/protocol.go defines the
// protocol. An image can have this file compiled, in /usr/lib/berth/java; it then starts faster than from this source.

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import jdk.jshell.Diag;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.JShellException;
import jdk.jshell.MethodSnippet;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;
import jdk.jshell.SourceCodeAnalysis.Completeness;
import jdk.jshell.SourceCodeAnalysis.CompletionInfo;
import jdk.jshell.TypeDeclSnippet;
import jdk.jshell.UnresolvedReferenceException;
import jdk.jshell.VarSnippet;
import jdk.jshell.execution.LocalExecutionControlProvider;

public class Driver {
    static final int PIECE = 3900;
    static final int LONGEST = 1 << 20; // maximum characters of a text; the rest is cut

    // The imports that JShell has by default.
    static final String[] IMPORTS = {
        "java.io.*", "java.math.*", "java.net.*", "java.nio.file.*", "java.util.*", "java.util.concurrent.*", "java.util.function.*", "java.util.prefs.*",
        "java.util.regex.*", "java.util.stream.*",
    };

    // A method main: its modifiers, and the beginning of its parameters.
    static final Pattern MAIN = Pattern.compile("((?:[\\w@]+\\s+)*)\\bvoid\\s+main\\s*\\(\\s*(\\)|(?:final\\s+)?String\\b)");

    // A declaration of the package, which JShell does not take, after comments.
    static final Pattern PACKAGE = Pattern.compile("\\A(?:\\s|//.*|/\\*(?s:.*?)\\*/)*+(package\\s+[\\w.]+\\s*;)");

    // The file name that a frame of a snippet has.
    static final Pattern SNIPPET = Pattern.compile("#(\\w+)");

    record Place(String cell, int line) { }

    final DataInputStream requests = new DataInputStream(new FileInputStream(FileDescriptor.in));
    final OutputStream out = new FileOutputStream(FileDescriptor.out);
    final OutputStream err = new FileOutputStream(FileDescriptor.err);
    JShell shell;
    SourceCodeAnalysis analysis;
    String mark;
    String number; // of the cell
    final Map<String, Place> places = new HashMap<>(); // where snippets begin, by their IDs
    volatile boolean running, interrupted;

    public static void main(String[] args) throws IOException {
        new Driver().serve();
    }

    void serve() throws IOException {
        String source = System.getProperty("berth.source");
        if (source != null) { // it is compiled by now, and user code does not need it
            new File(source, "Driver.java").delete();
            new File(source).delete();
        }
        System.setIn(new ByteArrayInputStream(new byte[0]));
        shell = JShell.builder().executionEngine(new LocalExecutionControlProvider(), Map.of()).in(System.in).out(System.out).err(System.err).build();
        analysis = shell.sourceCodeAnalysis();
        for (String name : IMPORTS) {
            shell.eval("import " + name + ";");
        }
        sun.misc.Signal.handle(new sun.misc.Signal("INT"), signal -> {
            if (running) {
                interrupted = true;
                shell.stop();
            }
        });
        while (true) {
            String line = line();
            if (line == null) {
                System.exit(0);
            }
            String[] head = line.split(" ");
            Map<String, String> settings = new HashMap<>();
            for (int left = head.length > 4 ? Integer.parseInt(head[4]) : 0; left > 0; left--) {
                String[] setting = line().split(" ");
                settings.put(setting[0], text(Integer.parseInt(setting[1])));
            }
            String code = text(Integer.parseInt(head[3]));
            mark = "\u001e" + head[0];
            number = head[1];
            boolean once = head[2].equals("once");
            Map<String, String> before = new HashMap<>();
            settings.forEach((name, value) -> before.put(name, System.setProperty(name, value)));
            boolean failed = cell(code, once);
            before.forEach((name, value) -> {
                if (value == null) {
                    System.clearProperty(name);
                } else {
                    System.setProperty(name, value);
                }
            });
            System.out.flush();
            System.err.flush();
            if (once) {
                System.exit(failed ? 1 : 0);
            }
            put(err, 'z', new byte[0]);
            put(out, 'z', new byte[0]);
        }
    }

    String text(int bytes) throws IOException {
        byte[] b = new byte[bytes];
        requests.readFully(b);
        return new String(b, StandardCharsets.UTF_8);
    }

    String line() throws IOException {
        ByteArrayOutputStream b = new ByteArrayOutputStream();
        for (int c; (c = requests.read()) != '\n'; b.write(c)) {
            if (c < 0) {
                return null;
            }
        }
        return b.toString(StandardCharsets.UTF_8);
    }

    // put writes one record, in pieces that are small enough for an atomic write.
    synchronized void put(OutputStream to, char kind, byte[] data) throws IOException {
        int at = 0;
        do {
            int n = Math.min(PIECE, data.length - at);
            ByteArrayOutputStream record = new ByteArrayOutputStream();
            record.write((mark + " " + kind + " " + n + "\n").getBytes(StandardCharsets.UTF_8));
            record.write(data, at, n);
            to.write(record.toByteArray());
            at += n;
        } while (at < data.length);
    }

    void put(char kind, String text) throws IOException {
        if (text.length() > LONGEST) {
            text = text.substring(0, LONGEST) + "… [" + (text.length() - LONGEST) + " characters left out]";
        }
        put(out, kind, text.getBytes(StandardCharsets.UTF_8));
    }

    void field(String name, String text) throws IOException {
        put('m', name);
        put('d', text == null ? "" : text);
    }

    boolean fail(String name, String message, String traceback) throws IOException {
        System.out.flush();
        put('e', "");
        field("name", name);
        field("message", message);
        field("traceback", traceback);
        return true;
    }

    // cell runs the statements of a cell in order, and shows the value of the last one if it is an expression. If there are
    // only declarations, with a method main among them, it calls that. It reports whether the cell failed.
    boolean cell(String code, boolean once) throws IOException {
        interrupted = false;
        Matcher header = PACKAGE.matcher(code);
        if (header.find()) {
            code = code.substring(0, header.start(1)) + " ".repeat(header.end(1) - header.start(1)) + code.substring(header.end(1));
        }
        String rest = code;
        SnippetEvent last = null;
        List<Snippet> all = new ArrayList<>();
        while (true) {
            int begin = code.length() - rest.length();
            CompletionInfo info = analysis.analyzeCompletion(rest);
            if (info.completeness() == Completeness.EMPTY) {
                break;
            }
            String source = info.source();
            if (source == null || info.completeness() == Completeness.DEFINITELY_INCOMPLETE || info.completeness() == Completeness.UNKNOWN) {
                source = rest; // the compiler reports the error
            }
            rest = source == rest ? "" : info.remaining();
            int end = invalid(source) ? statementWithoutSemicolon(code.substring(begin)) : 0;
            if (end > 0) {
                source = code.substring(begin, begin + end) + "\n;";
                rest = code.substring(begin + end);
            }
            begin += source.length() - source.stripLeading().length(); // or JShell would count lines wrongly
            int first = lineAt(code, begin);
            List<SnippetEvent> events = eval(source.stripLeading());
            if (interrupted) {
                return fail("Interrupted", "the cell was interrupted", "Interrupted: the cell was interrupted");
            }
            for (SnippetEvent e : events) {
                if (e.causeSnippet() != null) {
                    continue; // an earlier declaration that this one replaced
                }
                places.put(e.snippet().id(), new Place(number, first));
                last = e;
                if (e.status() == Snippet.Status.REJECTED) {
                    return rejected(code, begin, e.snippet());
                }
                if (e.exception() != null) {
                    return thrown(e.exception());
                }
                all.add(e.snippet());
            }
        }
        for (Snippet s : all) { // a later declaration, or a later cell, may define what an earlier one needs
            Snippet.Status status = shell.status(s);
            if (status == Snippet.Status.RECOVERABLE_NOT_DEFINED || status == Snippet.Status.RECOVERABLE_DEFINED && once) {
                return unresolved(s);
            }
        }
        String main = main(all);
        if (main == null) {
            show(last);
            return false;
        }
        for (SnippetEvent e : eval(main)) {
            if (interrupted) {
                return fail("Interrupted", "the cell was interrupted", "Interrupted: the cell was interrupted");
            }
            if (e.exception() != null) {
                return thrown(e.exception());
            }
        }
        return false;
    }

    List<SnippetEvent> eval(String source) {
        running = true;
        try {
            return shell.eval(source);
        } finally {
            running = false;
        }
    }

    // invalid reports whether the compiler does not understand a source.
    boolean invalid(String source) {
        return analysis.sourceToSnippets(source).stream().anyMatch(s -> s.kind() == Snippet.Kind.ERRONEOUS);
    }

    // statementWithoutSemicolon returns the length of the statement that a source begins with, if the statement ends with
    // a line, as at the prompt of JShell, and lacks only its semicolon. It returns 0 if there is no such statement. Further
    // lines that continue a statement belong to it.
    int statementWithoutSemicolon(String source) {
        int found = 0;
        for (int end = source.indexOf('\n'); end >= 0; end = source.indexOf('\n', end + 1)) {
            String lines = source.substring(0, end);
            switch (analysis.analyzeCompletion(lines).completeness()) {
                case EMPTY, DEFINITELY_INCOMPLETE -> { }
                default -> {
                    if (invalid(lines + "\n;")) {
                        return found;
                    }
                    found = end;
                }
            }
        }
        return found;
    }

    // main returns the call of the method main that the snippets declare, if they only declare: they are a program then.
    static String main(List<Snippet> all) {
        String call = null;
        for (Snippet s : all) {
            if (s instanceof MethodSnippet m && m.name().equals("main") && m.parameterTypes().matches("(String(\\[\\]|\\.\\.\\.))?")) {
                call = m.parameterTypes().isEmpty() ? "main();" : "main(new String[0]);";
            } else if (s instanceof TypeDeclSnippet t) {
                call = call == null ? main(t) : call;
            } else if (s.kind() == Snippet.Kind.VAR || s.kind() == Snippet.Kind.EXPRESSION || s.kind() == Snippet.Kind.STATEMENT) {
                return null;
            }
        }
        return call;
    }

    // main returns the call of the method main of a type, or null. The method may belong to an instance, as in Java 25.
    static String main(TypeDeclSnippet t) {
        Matcher m = MAIN.matcher(t.source());
        if (!m.find() || m.group(1).contains("private")) {
            return null;
        }
        String on = m.group(1).contains("static") ? t.name() : "new " + t.name() + "()";
        return on + (m.group(2).equals(")") ? ".main();" : ".main(new String[0]);");
    }

    void show(SnippetEvent e) throws IOException {
        if (e == null || e.value() == null || e.snippet().kind() != Snippet.Kind.EXPRESSION && !(e.snippet() instanceof VarSnippet v && v.name().startsWith("$"))) {
            return;
        }
        if (e.snippet().subKind() == Snippet.SubKind.ASSIGNMENT_SUBKIND) {
            return; // as in notebooks, an assignment shows nothing
        }
        System.out.flush();
        put('r', "value");
        field("text/plain", e.value());
    }

    // lineAt returns the line of a character, counted from 1.
    static int lineAt(String code, int at) {
        return (int) code.substring(0, at).chars().filter(c -> c == '\n').count() + 1;
    }

    // rejected reports the compiler's errors in a statement that begins at an offset of the cell.
    boolean rejected(String code, int begin, Snippet snippet) throws IOException {
        StringBuilder all = new StringBuilder();
        String first = null;
        for (Diag d : (Iterable<Diag>) shell.diagnostics(snippet)::iterator) {
            if (!d.isError()) {
                continue;
            }
            String message = d.getMessage(Locale.ENGLISH);
            first = first == null ? message : first;
            int at = Math.min(begin + (int) Math.max(0, d.getPosition()), Math.max(0, code.length() - 1));
            int from = code.lastIndexOf('\n', at - 1) + 1;
            int to = code.indexOf('\n', from);
            all.append("<cell>:" + lineAt(code, at) + ": error: " + message + "\n" + code.substring(from, to < 0 ? code.length() : to) + "\n" + " ".repeat(Math.max(0, at - from)) + "^\n");
        }
        return fail("CompilationError", first == null ? "the code cannot be compiled" : first, all.toString());
    }

    boolean unresolved(Snippet snippet) throws IOException {
        List<String> names = new ArrayList<>();
        if (snippet instanceof jdk.jshell.DeclarationSnippet d) {
            shell.unresolvedDependencies(d).forEach(names::add);
            for (Diag g : (Iterable<Diag>) shell.diagnostics(snippet)::iterator) {
                names.add(g.getMessage(Locale.ENGLISH));
            }
        }
        String message = String.join(", ", names);
        return fail("CompilationError", message, "error: " + message + "\n" + snippet.source());
    }

    // thrown reports an exception with the frames of the cell.
    boolean thrown(JShellException e) throws IOException {
        String name = e instanceof EvalException x ? x.getExceptionClassName() : e.getClass().getName();
        String message = e.getMessage();
        if (e instanceof UnresolvedReferenceException u) {
            name = "UnresolvedReferenceException";
            message = "what " + u.getSnippet().source() + " refers to is not defined";
        }
        StringBuilder trace = new StringBuilder();
        describe(trace, "", name, message, e);
        return fail(name.substring(Math.max(name.lastIndexOf('.'), name.lastIndexOf('$')) + 1), message, trace.toString());
    }

    void describe(StringBuilder trace, String prefix, String name, String message, Throwable e) {
        trace.append(prefix + name + (message == null ? "" : ": " + message) + "\n");
        for (StackTraceElement frame : e.getStackTrace()) {
            Matcher snippet = SNIPPET.matcher(String.valueOf(frame.getFileName()));
            if (snippet.matches()) {
                Place place = places.get(snippet.group(1));
                if (place != null) { // not the driver's own call of main
                    String cell = place.cell().equals(number) ? "<cell>" : "<cell-" + place.cell() + ">";
                    String within = frame.getMethodName().isEmpty() || frame.getMethodName().contains("do_it$") ? ""
                        : (frame.getClassName().isEmpty() ? "" : frame.getClassName() + ".") + frame.getMethodName() + " ";
                    trace.append("\tat " + within + "(" + cell + ":" + (place.line() + frame.getLineNumber() - 1) + ")\n");
                }
            } else if (!frame.getClassName().startsWith("jdk.jshell.") && !frame.getMethodName().equals("do_it$")) {
                trace.append("\tat " + frame + "\n");
            }
        }
        if (e.getCause() instanceof EvalException cause && cause != e) {
            describe(trace, "Caused by: ", cause.getExceptionClassName(), cause.getMessage(), cause);
        }
    }
}
