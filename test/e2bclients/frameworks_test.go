package e2bclients_test

import (
	"net"
	"os"
	"strings"
	"testing"

	"berth/test/needs"
)

// TestFrameworks has frameworks that bring a client of their own for E2B do a task each, by names alone, which all of
// them know.
func TestFrameworks(t *testing.T) {
	if os.Getenv("BERTH_FRAMEWORKS") == "" {
		t.Skip("BERTH_FRAMEWORKS is not set: `make test-e2b-frameworks` runs this, and installs 300 MB once")
	}
	needs.Containers(t)
	frameworks := []string{"openai", "langchain", "litellm"}
	d := start(t, "--tls-self-signed", "--domain", domain)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(d.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"E2B_DOMAIN=" + domain + ":" + port, "SSL_CERT_FILE=" + d.CAFile(),
		"LITELLM_LOCAL_MODEL_COST_MAP=True"} // its list of prices is on a server elsewhere
	resolve := resolver(t)
	for _, framework := range frameworks {
		t.Run(framework, func(t *testing.T) {
			dir := install(t, framework, true)
			program(t, d, dir, env, append(resolve, "venv/bin/python", "main.py")...)
		})
	}
	checkLog(t, d)
}
