package buildtest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os/exec"
	"strings"
)

// filesURL is the address of a server of files for ADD.
var filesURL string

// serveFiles serves the files that ADD gets.
func serveFiles(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/file.txt":
		_, _ = io.WriteString(w, "served\n")
	case "/in.tar":
		_, _ = w.Write(tarOf("in/w", "w\n"))
	default:
		http.NotFound(w, r)
	}
}

// sumOf returns the SHA-256 of a text, in hex.
func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// tarOf returns a tar of one file.
func tarOf(name, text string) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	// Writes to memory do not fail.
	_ = w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))})
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return buf.Bytes()
}

// packed returns a tar of one file that a program has compressed.
func packed(program, name, text string) string {
	cmd := exec.Command(program, "-c")
	cmd.Stdin = bytes.NewReader(tarOf(name, text))
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		panic(err) // machines that build images have both
	}
	return out.String()
}
