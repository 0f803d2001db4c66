set -e
test "$(Rscript -e 'cat(coef(lm(y ~ x, data.frame(x = 1:4, y = c(3, 5, 7, 9))))[["x"]])')" = 2
Rscript -e 'png("r.png"); plot(1:10); invisible(dev.off())' && identify r.png >/dev/null

test "$(printf 'int twice(int n) { return 2 * n; }\nSystem.out.println(twice(21));\n/exit\n' | jshell -s -)" = 42
cat >Main.java <<'J'
import java.util.stream.*;
public class Main { public static void main(String[] a) { System.out.println(IntStream.rangeClosed(1, 10).sum()); } }
J
javac Main.java
test "$(java Main)" = 55
java -Xshare:on -version 2>/dev/null # the archive of classes is there

cat >t.ts <<'T'
interface P { name: string }
const p: P = { name: "ts" };
console.log(p.name satisfies string);
T
tsc --target es2022 t.ts
test "$(node t.js)" = ts
test "$(esbuild --loader=ts <t.ts | node -)" = ts
test "$(node -p 'require("typescript").transpileModule("let n: number = 6 * 7; n", {}).outputText.trim()')" = "var n = 6 * 7;
n;"
echo 'const n: number = "text";' >wrong.ts
if tsc --noEmit wrong.ts >said; then echo "tsc lets a string pass for a number"; exit 1; fi
grep -q TS2322 said
