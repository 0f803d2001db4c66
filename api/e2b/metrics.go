package e2b

import (
	"slices"
	"strings"
	"time"

	"berth/api/e2b/usage"
	"berth/proto"
)

// A metric is what a sandbox used at one moment; sizes are in bytes.
type metric struct {
	Timestamp     proto.Time `json:"timestamp"`
	TimestampUnix int64      `json:"timestampUnix"`
	CPUCount      int64      `json:"cpuCount"`
	CPUUsedPct    float64    `json:"cpuUsedPct"` // of all cores that it may use
	MemUsed       int64      `json:"memUsed"`
	MemTotal      int64      `json:"memTotal"`
	MemCache      int64      `json:"memCache"`
	DiskUsed      int64      `json:"diskUsed"`
	DiskTotal     int64      `json:"diskTotal"`
}

func metricOf(s proto.Stats) metric {
	u := usage.Of(s)
	return metric{s.Timestamp, s.Timestamp.Unix(), u.CPUCount, u.CPUPercent, u.MemUsed, u.MemTotal, u.MemCache,
		u.DiskUsed, u.DiskTotal}
}

// metrics lists what a sandbox has used, oldest first.
func (e *Edge) metrics(c *call) (any, error) {
	s, err := e.session(c)
	if err != nil {
		return nil, err
	}
	const longest = 1 << 40 // seconds; a time that can be written
	start, err := c.whole("start", 0, 0, longest)
	if err != nil {
		return nil, err
	}
	end, err := c.whole("end", longest, 0, longest)
	if err != nil {
		return nil, err
	}
	out := []metric{}
	if e.cfg.Stats != nil {
		// A whole second as the end includes what was measured in it.
		for _, one := range e.cfg.Stats.History(s.Info(), time.Unix(start, 0), time.Unix(end, 0).Add(time.Second)) {
			out = append(out, metricOf(one))
		}
	}
	return out, nil
}

// metricsOfAll answers what several sandboxes use now.
func (e *Edge) metricsOfAll(c *call) (any, error) {
	out := struct {
		Sandboxes map[string]metric `json:"sandboxes"`
	}{map[string]metric{}}
	ids := strings.Split(c.query.Get("sandbox_ids"), ",")
	if len(ids) > maxPage {
		return nil, proto.Invalid("sandbox_ids", "sandbox_ids may name %d sandboxes", maxPage)
	}
	for _, id := range slices.Compact(ids) {
		s, err := e.cfg.Sessions.Get(c.owner, containerID(id))
		if err == nil && e.cfg.Stats != nil && stateOf(s.Info()) == running {
			out.Sandboxes[id] = metricOf(e.cfg.Stats.Now(s.Info()))
		}
	}
	return out, nil
}

// logs answers that there are none: what processes write is their clients'.
func (e *Edge) logs(c *call) (any, error) {
	if _, err := e.session(c); err != nil {
		return nil, err
	}
	return map[string][]any{"logs": {}}, nil
}
