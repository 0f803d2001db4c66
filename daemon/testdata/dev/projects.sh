set -e
mkdir c && cd c
printf '#include <math.h>\n#include <stdio.h>\nint main(void) { printf("%%.0f\\n", sqrt(49)); }\n' >main.c
printf 'cmake_minimum_required(VERSION 3.20)\nproject(p C CXX Fortran)\nadd_executable(p main.c)\ntarget_link_libraries(p m)\n' >CMakeLists.txt
cmake -G Ninja -B build >/dev/null && cmake --build build >/dev/null
test "$(build/p)" = 7
printf 'p: main.c\n\t$(CC) -o p main.c -lm\n' >Makefile && make -s p && test "$(./p)" = 7
cd ..

mkdir go && cd go
go mod init example.org/p 2>/dev/null
printf 'package p\n\nfunc Twice(n int) int { return 2 * n }\n' >p.go
printf 'package p\n\nimport "testing"\n\nfunc TestTwice(t *testing.T) { if Twice(21) != 42 { t.Fatal() } }\n' >p_test.go
test -z "$(gofmt -l .)" || gofmt -w .
go vet . && go test . >/dev/null
cd ..

cargo init --quiet --vcs none --name p rust && cd rust
printf '#[test]\nfn t() { assert_eq!(2 * 21, 42); }\nfn main() { println!("{}", 2 * 21); }\n' >src/main.rs
test "$(cargo run --quiet --offline)" = 42
cargo test --quiet --offline >/dev/null
cd ..

test "$(php -r 'echo json_encode([mb_strlen("é"), class_exists("PDO"), function_exists("curl_init")]);')" = "[1,true,true]"

printf 'public class M { public static void main(String[] a) { System.out.println(6 * 7); } }\n' >M.java
javac M.java && test "$(java M)" = 42
jar cfe m.jar M M.class && test "$(java -jar m.jar)" = 42

git init -q r && git -C r -c user.name=a -c user.email=b commit -q --allow-empty -m x
