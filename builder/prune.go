package main

import (
	"context"
	"time"

	"github.com/moby/buildkit/client"

	"berth/build/wire"
)

// unused returns filters for the parts of the cache that were not used for too long. BuildKit's own limit of age also
// takes parts that it has never counted a use of, such as the caches that a RUN mounts.
func (b *builder) unused(ctx context.Context) (filters []string, err error) {
	usage, err := b.worker.DiskUsage(ctx, client.DiskUsageInfo{})
	if err != nil {
		return nil, err
	}
	oldest := time.Now().Add(-time.Duration(b.job.KeepSeconds) * time.Second)
	for _, u := range usage {
		last := u.CreatedAt
		if u.LastUsedAt != nil {
			last = *u.LastUsedAt
		}
		if !u.InUse && last.Before(oldest) {
			filters = append(filters, "id=="+u.ID)
		}
	}
	return filters, nil
}

// prune keeps the owner's cache within its bounds and reports its size.
func (b *builder) prune(ctx context.Context) error {
	pruned := make(chan client.UsageInfo, 16)
	sum := make(chan int64)
	go func() {
		var bytes int64
		for u := range pruned {
			bytes += max(u.Size, 0)
		}
		sum <- bytes
	}()
	policy := []client.PruneInfo{{MaxUsedSpace: b.job.KeepBytes, All: true}}
	old, err := b.unused(ctx)
	if err == nil && len(old) > 0 {
		policy = append(policy, client.PruneInfo{Filter: old, All: true})
	}
	if err == nil {
		err = b.worker.Prune(ctx, pruned, policy...)
	}
	close(pruned)
	said := wire.Cache{Pruned: <-sum}
	if err != nil {
		return err
	}
	if c, ok := b.cache.(interface{ ReleaseUnreferenced(context.Context) error }); ok && said.Pruned > 0 {
		if err := c.ReleaseUnreferenced(ctx); err != nil {
			return err
		}
	}
	usage, err := b.worker.DiskUsage(ctx, client.DiskUsageInfo{})
	if err != nil {
		return err
	}
	for _, u := range usage {
		if !u.Shared { // others are layers of images
			said.Bytes += max(u.Size, 0)
		}
		said.Entries++
	}
	b.out.send(wire.Event{Cache: &said})
	return nil
}
