package daemon

import (
	"cmp"
	"runtime"
	"time"

	"berth/daemon/acme"
	"berth/daemon/certs"
	"berth/proto"
	"berth/session"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// metrics holds the metrics at /metrics, except the request counts of package api.
type metrics struct {
	registry *prometheus.Registry
	execs    *prometheus.CounterVec
	seconds  prometheus.Histogram
	sweeps   *prometheus.CounterVec
	sweeping *prometheus.HistogramVec
	sweepErr *prometheus.CounterVec
	egress   *prometheus.CounterVec
	carried  *prometheus.CounterVec
	calls    *prometheus.CounterVec
}

// newMetrics returns metrics with their own registry. The global registry would mix the counts of two daemons in one
// test process.
func newMetrics(version string) *metrics {
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "berth_build_info",
		Help:        "1; the labels say which build runs.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()}})
	build.Set(1)
	m := &metrics{
		registry: prometheus.NewRegistry(),
		execs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_execs_total",
			Help: "Commands that ended, by reason."}, []string{"reason"}),
		// The buckets are in seconds. They are dense around 10 ms, the time of a small command, and end above the
		// default time limit.
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "berth_exec_seconds", Help: "How long commands ran.", Buckets: []float64{.001, .0025, .005, .01, .025,
				.05, .1, .5, 1, 5, 30, 120, 600},
		}),
		sweeps: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_swept_total",
			Help: "What sweeps did, by task and kind."}, []string{"task", "kind"}),
		sweeping: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "berth_sweep_seconds",
			Help: "How long sweeps took."}, []string{"task"}),
		sweepErr: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_sweep_errors_total",
			Help: "Sweeps that failed in part."}, []string{"task"}),
		egress: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_egress_requests_total",
			Help: "Requests of containers to other hosts, by what came of them: ok, or why not."}, []string{"outcome"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_tool_calls_total",
			Help: "Calls that code in containers made of tools, by what came of them."}, []string{"outcome"}),
		carried: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_egress_bytes_total",
			Help: "Bytes of those requests that are over, by direction."}, []string{"direction"}),
	}
	m.registry.MustRegister(build, m.execs, m.seconds, m.sweeps, m.sweeping, m.sweepErr, m.egress, m.carried,
		m.calls, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// ended counts audit entries for the end of a command or request. It ignores other entries.
func (m *metrics) ended(e proto.AuditEntry) {
	if x := e.Egress; x != nil && e.Act != "egress.begin" {
		m.egress.WithLabelValues(cmp.Or(x.Reason, proto.AuditOK)).Inc()
		m.carried.WithLabelValues("out").Add(float64(x.Sent))
		m.carried.WithLabelValues("in").Add(float64(x.Received))
	}
	if e.Call != nil {
		m.calls.WithLabelValues(e.Outcome).Inc()
	}
	if e.Exec == nil || e.Exec.Reason == "" {
		return
	}
	m.execs.WithLabelValues(string(e.Exec.Reason)).Inc()
	m.seconds.Observe(e.Exec.Seconds)
}

// swept counts one run of a sweep. It ignores negative counts, because a counter must never decrease.
func (m *metrics) swept(task string, counts map[string]int, took time.Duration, err error) {
	for kind, n := range counts {
		m.sweeps.WithLabelValues(task, kind).Add(float64(max(0, n)))
	}
	m.sweeping.WithLabelValues(task).Observe(took.Seconds())
	if err != nil {
		m.sweepErr.WithLabelValues(task).Inc()
	}
}

// watch adds counts of the sessions and of the warm pool, read at each scrape.
func (m *metrics) watch(ss *session.Sessions, h host) {
	m.registry.MustRegister(sessionCounts{ss}, poolCounts{h})
}

// poolCounts reads the warm pool at each scrape.
type poolCounts struct{ h host }

var (
	warmDesc = prometheus.NewDesc("berth_warm_members", "Containers that are kept started for sessions to come, "+
		"by image and state.", []string{"image", "state"}, nil)
	claimsDesc = prometheus.NewDesc("berth_warm_starts_total",
		"Starts of containers that could be warm, by whether they were.", []string{"warm"}, nil)
)

// Describe implements prometheus.Collector.
func (c poolCounts) Describe(ch chan<- *prometheus.Desc) {
	ch <- warmDesc
	ch <- claimsDesc
}

// Collect implements prometheus.Collector. All its numbers come from one snapshot.
func (c poolCounts) Collect(ch chan<- prometheus.Metric) {
	ready, starting, hits, misses := c.h.PoolCounts()
	for state, of := range map[string]map[string]int{"ready": ready, "starting": starting} {
		for image, k := range of {
			ch <- prometheus.MustNewConstMetric(warmDesc, prometheus.GaugeValue, float64(k), image, state)
		}
	}
	ch <- prometheus.MustNewConstMetric(claimsDesc, prometheus.CounterValue, float64(hits), "hit")
	ch <- prometheus.MustNewConstMetric(claimsDesc, prometheus.CounterValue, float64(misses), "miss")
}

// certCounts reads the ends of the daemon's certificates at each scrape.
type certCounts struct{ source *certs.Source }

var expiryDesc = prometheus.NewDesc("berth_certificate_expiry_timestamp_seconds", "When the daemon's certificates "+
	"expire, by where they come from: given, own or issued by ACME.", []string{"source"}, nil)

// Describe implements prometheus.Collector.
func (c certCounts) Describe(ch chan<- *prometheus.Desc) { ch <- expiryDesc }

// Collect implements prometheus.Collector.
func (c certCounts) Collect(ch chan<- prometheus.Metric) {
	for from, end := range c.source.Expiry() {
		ch <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, float64(end.Unix()), from)
	}
}

// acmeCounts reads at each scrape how many tries to get a certificate have failed in a row.
type acmeCounts struct{ manager *acme.Manager }

var acmeFailuresDesc = prometheus.NewDesc("berth_certificate_failures", "Tries to get a certificate by ACME that "+
	"failed since the last one that did not.", nil, nil)

// Describe implements prometheus.Collector.
func (c acmeCounts) Describe(ch chan<- *prometheus.Desc) { ch <- acmeFailuresDesc }

// Collect implements prometheus.Collector.
func (c acmeCounts) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(acmeFailuresDesc, prometheus.GaugeValue, float64(c.manager.Status().Tries))
}

// sessionCounts reads the numbers at each scrape. Gauges that are set on every change could drift from the real
// numbers.
type sessionCounts struct{ ss *session.Sessions }

var (
	containersDesc = prometheus.NewDesc("berth_containers", "Containers, by state.", []string{"state"}, nil)
	runningDesc    = prometheus.NewDesc("berth_execs_running", "Commands that run now.", nil, nil)
	workspacesDesc = prometheus.NewDesc("berth_workspaces", "Workspaces on disk.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c sessionCounts) Describe(ch chan<- *prometheus.Desc) {
	ch <- containersDesc
	ch <- runningDesc
	ch <- workspacesDesc
}

// Collect implements prometheus.Collector. All its numbers come from one snapshot, so they are consistent.
func (c sessionCounts) Collect(ch chan<- prometheus.Metric) {
	n := c.ss.Counts()
	for state, k := range n.ByState {
		ch <- prometheus.MustNewConstMetric(containersDesc, prometheus.GaugeValue, float64(k), string(state))
	}
	ch <- prometheus.MustNewConstMetric(runningDesc, prometheus.GaugeValue, float64(n.RunningExecs))
	ch <- prometheus.MustNewConstMetric(workspacesDesc, prometheus.GaugeValue, float64(n.Workspaces))
}
