package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"

	"github.com/moby/buildkit/client"
	"github.com/moby/buildkit/exporter/containerimage/exptypes"
	"github.com/moby/buildkit/session"
	"github.com/moby/buildkit/session/filesync"
	"github.com/moby/buildkit/session/secrets/secretsprovider"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"berth/build/wire"
)

// openSession opens the session through which BuildKit reads the context and the Dockerfile.
func (b *builder) openSession(ctx context.Context) (*session.Session, error) {
	// BuildKit compares the files of a context with those of the last one under the same key, by size and time. Tars
	// often have one time for all files, so only the same tar has the same key.
	s, err := session.NewSession(ctx, b.files.sum)
	if err != nil {
		return nil, err
	}
	s.Allow(filesync.NewFSSyncProvider(filesync.StaticDirSource{"context": b.files, "dockerfile": b.files}))
	words := map[string][]byte{}
	for id, word := range b.job.Secrets {
		words[id] = []byte(word)
	}
	s.Allow(secretsprovider.FromMap(words))
	go func() {
		_ = s.Run(ctx, func(ctx context.Context, _ string, meta map[string][]string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() { _ = b.sm.HandleConn(ctx, ours, meta) }()
			return theirs, nil
		})
	}()
	return s, nil
}

// options are those of BuildKit's Dockerfile frontend.
func (b *builder) options() map[string]string {
	opts := map[string]string{
		"filename": b.job.Dockerfile,
		"target":   b.job.Target,
		// The first line of a Dockerfile may name an image of a frontend, which would be a program from a registry.
		// With a command line, the frontend takes that for done.
		"cmdline":            "berth",
		"image-resolve-mode": "local",
		"force-network-mode": "",
	}
	if b.job.NoCache {
		opts["no-cache"] = ""
	}
	for name, value := range b.job.Args {
		opts["build-arg:"+name] = value
	}
	for name, value := range b.job.Labels {
		opts["label:"+name] = value
	}
	delete(opts, "force-network-mode")
	return opts
}

// report sends the progress of the solver on.
func (b *builder) report(status <-chan *client.SolveStatus) {
	for st := range status {
		for _, v := range st.Vertexes {
			ev := &wire.Vertex{ID: string(v.Digest), Name: v.Name, Cached: v.Cached, Error: v.Error,
				Began: v.Started != nil, Ended: v.Completed != nil}
			if v.Started != nil && v.Completed != nil {
				ev.Millis = v.Completed.Sub(*v.Started).Milliseconds()
			}
			b.out.send(wire.Event{Vertex: ev})
		}
		for _, s := range st.Statuses {
			b.out.send(wire.Event{Status: &wire.Status{Vertex: string(s.Vertex), Item: s.ID, Done: s.Current,
				Total: s.Total}})
		}
		for _, l := range st.Logs {
			b.out.send(wire.Event{Log: &wire.Log{Vertex: string(l.Vertex), Stream: l.Stream, Data: l.Data}})
		}
		for _, w := range st.Warnings {
			b.out.send(wire.Event{Warning: string(w.Short)})
		}
	}
}

// resultOf returns the manifest of the built image.
func resultOf(response map[string]string) (built wire.Built, err error) {
	text, err := base64.StdEncoding.DecodeString(response[exptypes.ExporterImageDescriptorKey])
	if err != nil || len(text) == 0 {
		return built, errors.New("BuildKit named no image")
	}
	var desc ocispec.Descriptor
	if err := json.Unmarshal(text, &desc); err != nil {
		return built, err
	}
	return wire.Built{Digest: desc.Digest.String(), MediaType: desc.MediaType, Size: desc.Size}, nil
}
