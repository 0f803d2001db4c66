package inprocess

import (
	"context"
	"fmt"
	"net"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/grpc"
)

// served are the services that a builder of images needs, by the names of containerd's plugins.
var served = []string{"content", "diff", "images", "introspection", "leases", "snapshots"}

// Serve answers other programs on ln until the returned function is called, which closes their connections. It serves
// content, images, layers and leases, and nothing that runs sandboxes. All who can connect have the rights of the
// daemon, so the caller makes the socket for programs of its own.
func (c *Containerd) Serve(ln net.Listener) (stop func(), err error) {
	srv := grpc.NewServer(grpc.UnaryInterceptor(namedUnary), grpc.StreamInterceptor(namedStream))
	for _, name := range served {
		s, ok := c.services[name].(interface{ Register(*grpc.Server) error })
		if !ok {
			return nil, fmt.Errorf("containerd's %s cannot be served", name)
		}
		if err := s.Register(srv); err != nil {
			return nil, err
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln) // ends with Stop
	}()
	return func() { srv.Stop(); <-done }, nil
}

// namedUnary and namedStream put the caller's namespace where services look for it.
func namedUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(named(ctx), req)
}

func namedStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, namedServerStream{stream, named(stream.Context())})
}

func named(ctx context.Context) context.Context {
	if ns, ok := namespaces.Namespace(ctx); ok {
		return namespaces.WithNamespace(ctx, ns)
	}
	return ctx
}

type namedServerStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s namedServerStream) Context() context.Context { return s.ctx }
