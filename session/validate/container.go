// Package validate checks requests for containers and commands: what no container or command can have.
//
// In scope: bounds that hold for every daemon, and the daemon's own limits, which the caller passes. Each error is an
// InvalidArgument that names the field of the request. Out of scope: defaults, quotas and permissions. Package session
// calls it, and the daemon's flags have the same bounds.
package validate

import (
	"cmp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"berth/proto"
	"berth/session/secrets"
)

// LeastLimits are the lowest limits that a request may ask for. With less no container starts.
var LeastLimits = proto.Limits{CPUs: 0.01, MemoryBytes: 16 << 20, PIDs: 16, DiskBytes: 16 << 20, OpenFiles: 256}

// Bounds of what a request may ask for.
const (
	minIdle, maxIdle         = time.Second, 30 * 24 * time.Hour
	minLifetime, maxLifetime = time.Second, 365 * 24 * time.Hour
	maxReconnect             = time.Hour // without a client
	maxExecTimeout           = 24 * time.Hour
	maxOutputLimit           = 16 << 20
	maxCommand               = 1 << 20 // bytes of command text, or of all arguments
	maxEnv                   = 256     // entries
	maxEnvBytes              = 128 << 10
	maxSecret                = 64 << 10 // bytes
	maxName                  = 63       // bytes; a host name is no longer
	maxLabels                = 64
	maxLabelBytes            = 256
)

// Error returns an InvalidArgument error about a field of a request.
func Error(field, format string, args ...any) error {
	return proto.Errorf(proto.InvalidArgument, "", field, format, args...)
}

// Defaults refuses a default of the daemon that no request may ask for, since every request that relies on it would
// fail. The item of the error is the request's field, and the message follows the value.
func Defaults(l proto.Limits, idle, lifetime, execTimeout time.Duration) error {
	return cmp.Or(
		checkLeast("limits.cpus", l.CPUs, LeastLimits.CPUs),
		checkLeast("limits.memory_bytes", l.MemoryBytes, LeastLimits.MemoryBytes),
		checkLeast("limits.pids", l.PIDs, LeastLimits.PIDs),
		checkLeast("limits.disk_bytes", l.DiskBytes, LeastLimits.DiskBytes),
		checkLeast("limits.open_files", l.OpenFiles, LeastLimits.OpenFiles),
		checkDefault("idle_timeout_seconds", idle, minIdle, maxIdle),
		checkDefault("max_lifetime_seconds", lifetime, minLifetime, maxLifetime),
		checkDefault("timeout_seconds", execTimeout, 0, maxExecTimeout),
	)
}

func checkLeast[T int64 | float64](field string, v, least T) error {
	if !(v >= least) { // NaN fails this comparison too
		return Error(field, "is too little for a container; %v is the least", least)
	}
	return nil
}

func checkDefault(field string, d, lo, hi time.Duration) error {
	if d < lo || d > hi {
		return Error(field, "is not from %v to %v", lo, hi)
	}
	return nil
}

// Container checks a request for a container. idle and lifetime are those of the request, or the daemon's defaults. A
// request may lower the daemon's limits but not raise them. Classes checks the runtime class.
func Container(req proto.CreateContainer, idle, lifetime time.Duration, most proto.Limits) error {
	return cmp.Or(Idle("idle_timeout_seconds", idle),
		checkSpan("max_lifetime_seconds", lifetime, minLifetime, maxLifetime), checkName(req.Name),
		checkExisting(req), checkOrigin(req), Lease(req.Lease, 1), checkLabels(req.Labels),
		Env(req.Env), checkSecrets(req.Secrets, req.Env), Limits(req.Limits, most))
}

// MaxForks is how many copies of a container one request may make.
const MaxForks = 100

// Snapshot checks a request for a snapshot.
func Snapshot(req proto.CreateSnapshot) error {
	var expires error
	if req.ExpiresAfterSeconds != 0 {
		expires = checkSpan("expires_after_seconds", time.Duration(min(req.ExpiresAfterSeconds, 1<<32))*time.Second,
			minLifetime, maxLifetime)
	}
	return cmp.Or(checkName(req.Name), checkLabels(req.Labels), expires)
}

// checkOrigin refuses what a container cannot have beside a snapshot.
func checkOrigin(req proto.CreateContainer) error {
	switch {
	case req.Snapshot == "":
		return nil
	case req.Image != "":
		return Error("snapshot", "snapshot and image exclude each other; a snapshot has its image")
	case req.WorkspaceID != "":
		return Error("snapshot", "snapshot and workspace_id exclude each other; a snapshot has its workspace")
	}
	return nil
}

// Idle checks how long a container may be idle, as a field of a request asks for.
func Idle(field string, d time.Duration) error { return checkSpan(field, d, minIdle, maxIdle) }

func checkSpan(field string, d, lo, hi time.Duration) error {
	if d < lo || d > hi {
		return Error(field, "%s must be from %d to %d", field, int64(lo.Seconds()), int64(hi.Seconds()))
	}
	return nil
}

// Lease checks what a request wants of a lease. Its end is at least that many seconds away.
func Lease(req proto.LeaseRequest, least int64) error {
	switch req.Mode {
	case "", proto.LeaseRolling, proto.LeaseAbsolute:
	default:
		return Error("lease.mode", "lease.mode %.40q is neither rolling nor absolute", req.Mode)
	}
	switch req.AtEnd {
	case "", proto.LeaseStop, proto.LeasePause, proto.LeaseRemove:
	default:
		return Error("lease.at_end", "lease.at_end %.40q is not stop, pause or remove", req.AtEnd)
	}
	most := int64(maxLifetime / time.Second)
	switch n := req.EndsInSeconds; {
	case n == nil:
		return nil
	case req.EndsAt != nil:
		return Error("lease.ends_at", "lease has both ends_at and ends_in_seconds; leave one of them out")
	case *n < least || *n > most:
		return Error("lease.ends_in_seconds", "lease.ends_in_seconds must be from %d to %d", least, most)
	}
	return nil
}

// Limits refuses limits that the kernel would refuse later with a less clear error.
func Limits(l, most proto.Limits) error {
	return cmp.Or(
		checkLimit("limits.cpus", l.CPUs, LeastLimits.CPUs, most.CPUs),
		checkLimit("limits.memory_bytes", l.MemoryBytes, LeastLimits.MemoryBytes, most.MemoryBytes),
		checkLimit("limits.pids", l.PIDs, LeastLimits.PIDs, most.PIDs),
		checkLimit("limits.disk_bytes", l.DiskBytes, LeastLimits.DiskBytes, most.DiskBytes),
		checkLimit("limits.open_files", l.OpenFiles, LeastLimits.OpenFiles, most.OpenFiles),
	)
}

// checkLimit refuses a limit that is negative, above most, or below least. 0 means the default and is allowed.
func checkLimit[T int64 | float64](field string, n, least, most T) error {
	if n == 0 || n >= least && n <= most { // false for NaN
		return nil
	}
	return Error(field, "%s must be from %v to %v, which is this daemon's limit", field, least, most)
}

// Change checks a change of a container. most and ports are the daemon's bounds.
func Change(req proto.ChangeContainer, most proto.Limits, ports proto.PortAccess) error {
	name, idle, public := "", error(nil), error(nil)
	if req.Name != nil {
		name = *req.Name
	}
	if req.IdleTimeoutSeconds != 0 {
		idle = Idle("idle_timeout_seconds", time.Duration(min(req.IdleTimeoutSeconds, 1<<32))*time.Second)
	}
	if req.PublicPorts != nil {
		public = PublicPorts(*req.PublicPorts, ports)
	}
	if req.Name == nil && req.Labels == nil && req.PublicPorts == nil && req.Limits == (proto.Limits{}) &&
		req.IdleTimeoutSeconds == 0 && req.Lease == (proto.LeaseRequest{}) && req.Network.IsZero() {
		return Error("name", "nothing to change; set name, labels, limits, network, public_ports, "+
			"idle_timeout_seconds or lease")
	}
	return cmp.Or(checkName(name), checkLabels(req.Labels), Limits(req.Limits, most), idle, Lease(req.Lease, 0), public)
}

// checkExisting checks whether a request that takes an existing container can be served.
func checkExisting(req proto.CreateContainer) error {
	switch {
	case !req.Existing:
		return nil
	case req.Name == "":
		return Error("existing", "existing needs name, the name of the container to return or create")
	case req.IdempotencyKey != "":
		return Error("idempotency_key", "existing makes the request idempotent by its name; leave the idempotency key "+
			"out, or leave existing out")
	}
	return nil
}

// checkName checks the name of a container. An ID is no name: it would stand for two containers.
func checkName(name string) error {
	if name == "" {
		return nil
	}
	if len(name) > maxName || strings.Trim(name, nameBytes) != "" || strings.ContainsRune("_.-", rune(name[0])) {
		return Error("name", "name %.64q must be 1 to %d letters, digits, '_', '.' and '-', the first a letter or "+
			"digit", name, maxName)
	}
	if proto.ValidID(proto.ContainerPrefix, name) {
		return Error("name", "name %q is an ID; choose another", name)
	}
	return nil
}

const nameBytes = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.-"

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return Error("labels", "%d labels are too many; %d is the limit", len(labels), maxLabels)
	}
	for k, v := range labels {
		if k == "" || len(k) > maxLabelBytes || len(v) > maxLabelBytes || !printable(k) || !printable(v) {
			return Error("labels", "label %.64q: keys and values must be printable UTF-8 of at most %d bytes, "+
				"keys not empty", k, maxLabelBytes)
		}
	}
	return nil
}

// Env checks the names and the size of an environment.
func Env(env map[string]string) error {
	if len(env) > maxEnv {
		return Error("env", "%d environment variables are too many; %d is the limit", len(env), maxEnv)
	}
	size := 0
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || !utf8.ValidString(k) {
			return Error("env", "environment variable %.64q: a name must not be empty and not hold '=' or NUL", k)
		}
		if strings.ContainsRune(v, 0) {
			return Error("env", "environment variable %.64q: its value holds a NUL byte", k)
		}
		size += len(k) + len(v) + 2
	}
	if size > maxEnvBytes {
		return Error("env", "the environment has %d bytes; %d is the limit", size, maxEnvBytes)
	}
	return nil
}

// printable reports whether s is UTF-8 without control characters.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// checkSecrets checks secrets together with the environment that they go into.
func checkSecrets(values, env map[string]string) error {
	if err := Env(values); err != nil {
		return Error("secrets", "secrets: %s", strings.ReplaceAll(proto.AsError(err).Message, "environment variable",
			"secret"))
	}
	for name, value := range values {
		if _, ok := env[name]; ok {
			return Error("secrets",
				"secret %.64q: there is an environment variable of that name; leave one of them out", name)
		}
		if len(value) < secrets.MinSecret || len(value) > maxSecret {
			return Error("secrets", "secret %.64q: it must have %d to %d bytes; what is shorter cannot be hidden, "+
				"so give it as env", name, secrets.MinSecret, maxSecret)
		}
	}
	return nil
}
