package daemon_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/proto"
)

// devPrograms are whole programs in the languages that the image dev has.
var devPrograms = map[string][]struct{ text, stdout, err string }{
	"c": {
		{"#include <stdio.h>\nint main(void) { puts(\"hé\"); }", "hé\n", ""},
		{"int main(void) { return x; }", "", "main.c:1"},
	},
	"c++": {
		{"#include <iostream>\n#include <ranges>\nint main() { for (int i : std::views::iota(0, 3)) std::cout << i; }",
			"012", ""},
		{"int main() { throw 1; }", "", "SIGABRT"},
	},
	"fortran": {{"program p\n  print '(i0)', sum([1, 2, 3])\nend program", "6\n", ""}},
	"go": {
		{"package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(min(3, 2)) }", "2\n", ""},
		{"package main\n\nfunc main() { x := 1 }", "", "declared and not used: x"},
		{"package main\n\nimport \"os\"\n\nfunc main() { os.Exit(3) }", "", "status 3"},
	},
	"rust": {
		{"fn main() { println!(\"{}\", (1..=4).product::<u32>()); }", "24\n", ""},
		{"fn main() { let x: u8 = \"s\"; }", "", "mismatched types"},
	},
	"php": {
		{"echo array_sum([1, 2]), PHP_EOL;", "3\n", ""},
		{"<b><?php echo 1 ?></b>", "<b>1</b>", ""},
		{"exit(3);", "", "status 3"},
	},
	"java": {{"class Main { public static void main(String[] a) { System.out.println(7); } }", "7\n", ""}},
}

// TestDevImage uses each language of the image dev, as the ordinary user and without network. Building the image takes
// long, so it runs in `make test-dev`.
func TestDevImage(t *testing.T) {
	archive := os.Getenv("BERTH_DEV_IMAGE")
	if archive == "" {
		t.Skip("BERTH_DEV_IMAGE is not set: `make test-dev` builds the image dev and runs this")
	}
	if err := base.ImportImage("dev", archive); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = base.Do("DELETE", "/v1/images/dev", nil) })
	dev := createFrom(t, "dev")
	trial(t, dev, filepath.Join("testdata", "dev", "projects.sh"))
	for language, programs := range devPrograms {
		kept := "of-" + strings.ReplaceAll(language, "+", "p")
		for _, p := range programs {
			for _, asked := range []proto.Program{{Container: dev}, {Container: dev, Context: kept}} {
				asked.Code, asked.Language = p.text, language
				res := runCode(t, asked)
				if got := strings.Join(res.Logs.Stdout, ""); got != p.stdout || (res.Error != "") != (p.err != "") ||
					!strings.Contains(res.Error, p.err) {
					t.Errorf("%s in context %q: %s\n%+v", language, asked.Context, p.text, res)
				}
			}
		}
	}
}
