package forms

import (
	"strings"
	"testing"

	"berth/files/filename"
	"berth/proto"
)

func FuzzParseDisposition(f *testing.F) {
	for _, s := range []string{`form-data; name="file"; filename="a.csv"`,
		`form-data; name="file"; filename="a\"b\\c.csv"`, `form-data; name=file`,
		`form-data; name="file"; filename="a%22%0d%0Ab"`, `form-data; name="file"; filename*=UTF-8''%e2%82%ac`,
		`form-data; name="file"; filename="`,
		`form-data;;; ; name = "file" ;`, `form-data; filename="\`, "form-data; name=\"\x00\xff\"", `attachment`, ``,
		`form-data; filename="../../x"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		params, err := ParseDisposition(header)
		if err != nil {
			if proto.CodeOf(err) != proto.InvalidArgument {
				t.Fatalf("%v", err)
			}
			return
		}
		name, err := filename.Clean(params["filename"], "text/plain")
		if err != nil {
			return
		}
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "<>:\"|?*\\/\x00\n\r\x1b") {
			t.Fatalf("%q became the name %q", header, name)
		}
		quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) // as Go writes it
		again, err := ParseDisposition(`form-data; name="file"; filename="` + quoted + `"`)
		if err != nil || again["filename"] != formUnescape.Replace(name) {
			t.Fatalf("%q does not survive a round trip: %q, %v", name, again["filename"], err)
		}
	})
}
