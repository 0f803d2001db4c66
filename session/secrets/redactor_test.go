package secrets

import (
	"encoding/base64"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	hidden := []string{
		"export OPENAI_API_KEY=hunter2secret", "MY_TOKEN='hunter2secret' ./x",
		`curl -H "Authorization: Bearer hunter2secret"`,
		"mysql --password hunter2secret", "git clone https://me:hunter2secret@host/x", "echo sk-hunter2secretABCDEFGH",
		`{"client_secret": "hunter2secret"}`, "docker login --token=hunter2secret", "PGPASSWORD=hunter2secret psql",
	}
	for _, c := range hidden {
		if got := Redact(c); strings.Contains(got, "hunter2secret") || !strings.Contains(got, "[redacted]") {
			t.Errorf("%q became %q", c, got)
		}
	}
	for _, c := range []string{"ls -la /workspace", "python3 train.py --epochs 3", "echo a:b=c; cat x | wc -l",
		"git log --author me"} {
		if got := Redact(c); got != c {
			t.Errorf("%q became %q", c, got)
		}
	}
}

func TestRedactCut(t *testing.T) {
	if got := RedactCut("echo hi", 100); got != "echo hi" {
		t.Errorf("%q", got)
	}
	long := strings.Repeat("a", 90) + " password=hunter22hunter22 " + strings.Repeat("b ", 1<<19)
	for n := 80; n < 130; n++ { // wherever the cut falls
		if got := RedactCut(long, n); strings.Contains(got, "hunter") || len(got) > n+3 {
			t.Fatalf("cut at %d: %q", n, got)
		}
	}
	// shrinks much
	many := strings.Repeat("token=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ", 1000)
	for n := 1000; n < 1100; n++ {
		if got := RedactCut(many, n); strings.Contains(got, "aaa") {
			t.Fatalf("cut at %d: %q", n, got)
		}
	}
}

func TestRedactQuotedInQuotes(t *testing.T) {
	for _, in := range []string{
		`curl -d "{\"password\":\"hunter22\",\"n\":1}" x`, `curl -d '{"api_key" : "hun\"ter22"}'`,
		`PASSWORD="hunter22 and`, `curl -u me:hunter22 x`, `curl --user=me:hunter22`,
		"password='hunter22", "export DB_PASSWORD=hunter22;ls",
	} {
		if out := Redact(in); strings.Contains(out, "ter22") || !strings.Contains(out, "[redacted]") {
			t.Errorf("%s gives %s", in, out)
		}
	}
}

// What is left out, since it cannot find anything, would not have.
func FuzzRedact(f *testing.F) {
	for _, seed := range []string{"ls -la", "MY_TOKEN=x", "\u017fecret=x", "-u a:b", "x://a:b@c",
		"EYJabcdefgh.abcdefgh.x eyJabcdefgh.abcdefgh.x", "-----BEGIN RSA PRIVATE KEY-----", "Bearer abcdefgh",
		"\xff AKIA0123456789ABCDEF"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all := text
		for _, r := range redactions {
			all = r.find.ReplaceAllString(all, r.with)
		}
		if got := Redact(text); got != all {
			t.Errorf("%q became %q, and by all rules %q", text, got, all)
		}
	})
}

func BenchmarkRedact(b *testing.B) {
	for b.Loop() {
		Redact("python3 train.py --epochs 3 --out /workspace/model")
	}
}

const hushed = "Tr0ub4dor & 3/+ \"'ü\nsecond line"

func TestRedactorHidesASecretHoweverItIsWritten(t *testing.T) {
	v := NewRedactor(nil, map[string]string{"S": hushed})
	for _, text := range append(secretForms(hushed), "x"+hushed+"y", base64.StdEncoding.EncodeToString(
		[]byte("user:"+hushed)), hushed+hushed) {
		out := v.Hide("before " + text + " after")
		if strings.Contains(out, "ub4dor") || !strings.Contains(out, redactedText) ||
			!strings.HasPrefix(out, "before ") || !strings.HasSuffix(out, " after") {
			t.Errorf("%q is shown as %q", text, out)
		}
	}
	if enc := base64.StdEncoding.EncodeToString([]byte("user:" + hushed)); strings.Contains(v.Hide(enc),
		base64.StdEncoding.EncodeToString([]byte("ub4dor & 3/+"))) {
		t.Error("base64 of a text that holds it shows it")
	}
	if out := v.Hide("an innocent command line --with=words"); out != "an innocent command line --with=words" {
		t.Error(out)
	}
}

// However a text is cut, its tail has no part of a secret that is long enough to matter.
func TestRedactorHidesWhatACutGoesThrough(t *testing.T) {
	const secret = "abcdefghijklmnopqrstuvwxyz0123456789"
	v := NewRedactor(nil, map[string]string{"S": secret})
	text := "x " + secret + strings.Repeat(" y", 40) + secret + " z"
	for n := range len(text) + 2 {
		out := v.Tail(text, n)
		for i := range len(secret) - 4 {
			if strings.Contains(out, secret[i:i+4]) {
				t.Fatalf("the last %d bytes show %q: %q", n, secret[i:i+4], out)
			}
		}
	}
}

func TestRedactorLeavesOrdinaryEnvironments(t *testing.T) {
	v := NewRedactor(map[string]string{"LANG": "C.UTF-8", "HOME": "/home/user2", "N": "12345678", "MODE": "production",
		"TOKEN": "abcd", "X": "f3a9c1d2e4"})
	text := "C.UTF-8 /home/user2 12345678 production"
	if out := v.Hide(text); out != text {
		t.Error(out)
	}
	if out := v.Hide("abcd f3a9c1d2e4"); out != redactedText+" "+redactedText {
		t.Error(out)
	}
}
