package main

import (
	"os"
	"strings"
	"testing"
)

// The manual has every flag of serve. An operator who has to find one out from the source has been let down.
func TestServeFlagsAreInTheManual(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	manual := string(text)
	n := 0
	for line := range strings.Lines(serveCommand().Flags().FlagUsages()) {
		name := strings.Fields(line)[0]
		n++
		if !strings.Contains(manual, "`"+name+"`") && !strings.Contains(manual, "`"+name+" ") {
			t.Errorf("%s is not in it", name)
		}
	}
	if n < 20 {
		t.Errorf("%d flags", n)
	}
}
