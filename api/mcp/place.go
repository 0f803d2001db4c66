package mcp

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"berth/api"
	"berth/proto"
)

// A place is the container of a session: an existing one, or what a new one is made of. The containers that single
// calls get are confined like a new one.
type place struct {
	container, image string
	proto.Confinement
}

// create returns the request for a container of the place.
func (p place) create() proto.CreateContainer {
	return proto.CreateContainer{Image: p.image, RuntimeClass: p.RuntimeClass, Limits: p.Limits,
		Labels: map[string]string{"made-by": "mcp"}, MaxLifetimeSeconds: int64(ownLifetime.Seconds())}
}

// A placeField is one field of a place as clients write it: as a key of the query, or as a header.
type placeField struct {
	key, header string
	get         func(*place) string
	set         func(*place, string) error
}

// placeFields are all fields. A key of the query replaces the header.
var placeFields = []placeField{
	textField("container", "Berth-Container", func(p *place) *string { return &p.container }),
	textField("image", "Berth-Image", func(p *place) *string { return &p.image }),
	textField("runtime_class", "Berth-Runtime-Class", func(p *place) *string { return (*string)(&p.RuntimeClass) }),
	numberField("cpus", "Berth-Cpus", func(p *place, n float64) { p.Limits.CPUs = n },
		func(p *place) float64 { return p.Limits.CPUs }),
	countField("memory_bytes", "Berth-Memory-Bytes", func(p *place) *int64 { return &p.Limits.MemoryBytes }),
	countField("pids", "Berth-Pids", func(p *place) *int64 { return &p.Limits.PIDs }),
	countField("disk_bytes", "Berth-Disk-Bytes", func(p *place) *int64 { return &p.Limits.DiskBytes }),
	countField("open_files", "Berth-Open-Files", func(p *place) *int64 { return &p.Limits.OpenFiles }),
}

func textField(key, header string, at func(*place) *string) placeField {
	return placeField{key, header, func(p *place) string { return *at(p) },
		func(p *place, v string) error { *at(p) = v; return nil }}
}

func numberField(key, header string, set func(*place, float64), get func(*place) float64) placeField {
	return placeField{key, header,
		func(p *place) string {
			if n := get(p); n != 0 {
				return strconv.FormatFloat(n, 'g', -1, 64)
			}
			return ""
		},
		func(p *place, v string) error {
			n, err := strconv.ParseFloat(v, 64)
			if err != nil || math.IsNaN(n) {
				return proto.Invalid(key, "%s must be a number, and is %.80q", key, v)
			}
			if n == 0 {
				n = proto.NoLimit
			}
			set(p, n)
			return nil
		}}
}

func countField(key, header string, at func(*place) *int64) placeField {
	return placeField{key, header,
		func(p *place) string {
			if *at(p) != 0 {
				return fmt.Sprint(*at(p))
			}
			return ""
		},
		func(p *place, v string) (err error) {
			if *at(p), err = strconv.ParseInt(v, 10, 64); err != nil {
				return proto.Invalid(key, "%s must be a whole number, and is %.80q", key, v)
			}
			if *at(p) == 0 {
				*at(p) = proto.NoLimit
			}
			return nil
		}}
}

// readPlace reads a place from headers.
func readPlace(h http.Header) (p place, err error) {
	for _, f := range placeFields {
		if v := h.Get(f.header); v != "" {
			if err := f.set(&p, v); err != nil {
				return p, err
			}
		}
	}
	return p, nil
}

// write writes a place into headers, from which readPlace reads it.
func (p place) write(h http.Header) {
	for _, f := range placeFields {
		h.Set(f.header, f.get(&p))
	}
}

// requestedPlace returns the container that a request for a new session asks for.
func (e *Edge) requestedPlace(r *http.Request, c api.Caller) (place, error) {
	p, err := readPlace(r.Header)
	if err != nil {
		return p, err
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return p, proto.Invalid("query", "the query of the URL is malformed; percent-encode its values")
	}
	known := 0
	for _, f := range placeFields {
		if values := query[f.key]; len(values) > 0 {
			known++
			if err := f.set(&p, values[0]); err != nil {
				return p, err
			}
		}
	}
	if known < len(query) {
		return p, unknownKey(query)
	}
	if p.container == "" {
		return p, e.Sessions.CheckConfinement(p.Confinement)
	}
	if p.image != "" {
		return p, proto.Invalid("image", "image applies to a new container only; leave it out if container names one")
	}
	if err := p.WithContainer(); err != nil {
		return p, err
	}
	_, err = e.Sessions.Get(c.Owner, p.container)
	return p, err
}

func unknownKey(query url.Values) error {
	for key := range query {
		if !slices.ContainsFunc(placeFields, func(f placeField) bool { return f.key == key }) {
			return proto.Invalid("query", "query key %.80q is unknown; use container, image, runtime_class, cpus, "+
				"memory_bytes, pids, disk_bytes or open_files", key)
		}
	}
	return nil
}
