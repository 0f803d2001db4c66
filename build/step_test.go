package build

import (
	"slices"
	"testing"
)

// TestProxyOfSteps checks the variables that lead a step's programs to the proxy: what the Dockerfile says wins.
func TestProxyOfSteps(t *testing.T) {
	const proxy = "http://127.0.0.1:3128"
	for _, test := range []struct{ env, want []string }{
		{nil, []string{"HTTPS_PROXY=" + proxy, "https_proxy=" + proxy, "YARN_HTTP_PROXY=" + proxy,
			"YARN_HTTPS_PROXY=" + proxy}},
		{[]string{"YARN_HTTPS_PROXY=http://own:1"}, []string{"YARN_HTTPS_PROXY=http://own:1", "HTTPS_PROXY=" + proxy}},
		{[]string{"HTTPS_PROXY=http://own:1"}, []string{"HTTPS_PROXY=http://own:1", "YARN_HTTPS_PROXY=http://own:1"}},
	} {
		got := withProxy(test.env)
		for _, kv := range test.want {
			if !slices.Contains(got, kv) {
				t.Errorf("%q gives %q, want %s in it", test.env, got, kv)
			}
		}
	}
}
