package examples_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The program of the project's README is the one that the suite runs.
func TestReadmeHasTheFirstProgram(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join("..", "..", "examples", "python", "main.py"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```python\n"+string(program)+"```\n") {
		t.Errorf("README.md does not have this program:\n%s", program)
	}
}
