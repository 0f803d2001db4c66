package daemon_test

import (
	"net/http"
	"net/url"
	"testing"
)

// TestMetricsOutsideLoopback checks that a port that others can reach gives metrics to holders of a key, or to all if
// the operator says so.
func TestMetricsOutsideLoopback(t *testing.T) {
	for _, c := range []struct {
		flags []string
		want  int
	}{
		{nil, http.StatusOK},
		{[]string{"--listen", "0.0.0.0:0"}, http.StatusUnauthorized},
		{[]string{"--listen", "0.0.0.0:0", "--open-metrics"}, http.StatusOK},
	} {
		d := bare(t, c.flags...)
		u, err := url.Parse(d.URL)
		if err != nil {
			t.Fatal(err)
		}
		d.URL = "http://127.0.0.1:" + u.Port()
		res, err := http.Get(d.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != c.want {
			t.Errorf("%q: %d, not %d", c.flags, res.StatusCode, c.want)
		}
		if status, _, err := d.Do("GET", "/metrics", nil); err != nil || status != http.StatusOK {
			t.Errorf("%q, with a key: %d %v", c.flags, status, err)
		}
	}
}
