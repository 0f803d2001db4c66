package api

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"berth/api/openapi"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A meter counts requests.
type meter struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// newMeter creates the request metrics and registers them, unless the registerer is nil.
func newMeter(reg prometheus.Registerer) *meter {
	m := &meter{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_http_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berth_http_request_seconds", Help: "Time from a request's header to the end of its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 120, 600},
		}, []string{"route", "status"}),
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.seconds)
	}
	return m
}

func (m *meter) observe(x *exchange, took time.Duration) {
	route, status := x.route(), strconv.Itoa(x.status)
	m.requests.WithLabelValues(route, status).Inc()
	if !x.hijacked { // the duration of a websocket says nothing
		m.seconds.WithLabelValues(route, status).Observe(took.Seconds())
	}
}

// An OpsConfig is what Ops serves.
type OpsConfig struct {
	Metrics     prometheus.Gatherer
	Ready       func(context.Context) error
	Open        bool // /metrics needs no key
	OpenLocally bool // only programs of this machine can connect, and /metrics needs no key from them

	Documents map[string]any // JSON that anybody may read, by path
}

// Ops is the edge for operators. GET /healthz answers 200, or the error of Ready. GET /metrics answers the metrics.
// They reveal nothing about any owner.
func Ops(cfg OpsConfig) Edge {
	metrics := promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{})
	e := Edge{
		Name:    "operations",
		Dialect: Plain,
		Browser: true,
		Routes: []Route{
			{Method: "GET", Pattern: "/healthz", Where: None, Public: true, Probe: true, Handle: health(cfg.Ready),
				Doc: &openapi.Operation{ID: "health", Tag: "daemon", Public: true,
					Summary: "Report whether the daemon is ready.", Fails: []int{500, 503},
					Answers: map[int][]openapi.Content{http.StatusOK: {{Media: "application/json",
						Of: openapi.Object([]string{"status"},
							openapi.Schema{"status": openapi.Schema{"const": "ok"}})}}}}},
			{Method: "GET", Pattern: "/metrics", Where: None, Keyless: cfg.keyless, Probe: true,
				Handle: func(w http.ResponseWriter, r *http.Request, _ Caller) error {
					metrics.ServeHTTP(w, r)
					return nil
				},
				Doc: &openapi.Operation{ID: "metrics", Tag: "daemon",
					Summary: "Read metrics in the format of Prometheus.",
					Description: "Needs no key where the daemon listens on loopback, under a name of loopback, or if " +
						"it runs with `--open-metrics`.",
					Fails:   []int{500},
					Answers: map[int][]openapi.Content{http.StatusOK: {{Media: "text/plain"}}}}},
		},
	}
	for _, path := range slices.Sorted(maps.Keys(cfg.Documents)) {
		e.Routes = append(e.Routes, Route{Method: "GET", Pattern: path, Where: None, Public: true,
			Handle: func(w http.ResponseWriter, _ *http.Request, _ Caller) error {
				return JSON(w, http.StatusOK, cfg.Documents[path])
			}})
	}
	return e
}

// keyless reports whether /metrics needs no key. On loopback, a proxy may pass on requests of others, and a web page
// may come from a name that leads here. Both usually have another host. A proxy that sends this server's own host adds
// headers.
func (c OpsConfig) keyless(r *http.Request) bool {
	if c.Open {
		return true
	}
	passedOn := slices.ContainsFunc(proxyHeaders, func(name string) bool { return len(r.Header.Values(name)) > 0 })
	return c.OpenLocally && IsOwnName(r.Host) && !passedOn && Origins(nil).Check(r) == nil
}

// proxyHeaders are what proxies add to requests.
var proxyHeaders = []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
	"X-Real-Ip"}

func health(ready func(context.Context) error) Handler {
	return func(w http.ResponseWriter, r *http.Request, _ Caller) error {
		if err := ready(r.Context()); err != nil {
			return err
		}
		return JSON(w, http.StatusOK, map[string]string{"status": "ok"})
	}
}
