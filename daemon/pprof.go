package daemon

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"time"

	"berth/api"
	"berth/proto"
)

// blockSampling is the average waiting time of goroutines per sample of the block profile, in nanoseconds. It is fine
// enough for an exec of 1 ms, and coarse enough not to slow it down.
const blockSampling = 10_000

// A profiler serves Go profiles of this process. It is a separate server, not reachable through the API. It needs no
// key, so it listens on loopback only.
type profiler struct {
	listener net.Listener
	server   *http.Server
	done     chan struct{}
}

// profile starts a profiler.
func profile(address string, log *slog.Logger) (*profiler, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, proto.Errorf(proto.InvalidArgument, "", "pprof", "--pprof cannot listen: %v; give a free port "+
			"such as 127.0.0.1:6060", err)
	}
	if !isLoopback(listener) {
		return nil, errors.Join(proto.Errorf(proto.InvalidArgument, "", "pprof", "--pprof %s can be reached from "+
			"other machines, and asks for no key; listen on 127.0.0.1", address), listener.Close())
	}
	runtime.SetBlockProfileRate(blockSampling)
	runtime.SetMutexProfileFraction(10) // samples one event in 10
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	local := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !api.IsOwnName(r.Host) { // a web page under a name that leads here
			http.Error(w, "open this under an address of loopback", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
	p := &profiler{listener: listener, server: &http.Server{Handler: local, ReadHeaderTimeout: 10 * time.Second},
		done: make(chan struct{})}
	go func() {
		defer close(p.done)
		if err := p.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("serving profiles", "error", err)
		}
	}()
	log.Info("profiles are served", "url", "http://"+listener.Addr().String()+"/debug/pprof/")
	return p, nil
}

// Close ends the profiler and the profiles in progress.
func (p *profiler) Close() error {
	err := p.server.Close()
	<-p.done
	runtime.SetBlockProfileRate(0)
	runtime.SetMutexProfileFraction(0)
	return err
}
