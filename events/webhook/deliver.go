package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"berth/events"
	"berth/proto"
	"berth/proto/span"
)

// startLocked starts the delivery to a webhook that is enabled. The caller holds mu.
func (s *Store) startLocked(h *hook) {
	if !h.rec.Webhook.Enabled || h.stop != nil || s.ctx.Err() != nil || s.all[h.rec.Webhook.ID] != h {
		return
	}
	var ctx context.Context
	ctx, h.stop = context.WithCancel(s.ctx)
	h.done = make(chan struct{})
	done := h.done
	s.wg.Go(func() {
		defer close(done)
		s.deliver(ctx, h)
	})
}

// stopLocked ends the delivery to a webhook and waits for it. The caller holds mu, which it releases meanwhile.
func (s *Store) stopLocked(h *hook) {
	if h.stop == nil {
		return
	}
	h.stop()
	done := h.done
	s.mu.Unlock()
	<-done
	s.mu.Lock()
	h.stop = nil
}

// record returns the webhook as it is.
func (s *Store) record(h *hook) record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.rec
}

// retryFollow is the time until a delivery tries again to read events.
const retryFollow = 10 * time.Second

// deliver follows the events of a webhook and posts them, until ctx ends or the webhook is disabled.
func (s *Store) deliver(ctx context.Context, h *hook) {
	for {
		err := s.follow(ctx, h)
		if ctx.Err() != nil || err == errStopped {
			return
		}
		s.cfg.Log.Error("reading events for a webhook", "webhook", s.record(h).Webhook.ID, "error", err)
		if !sleep(ctx, retryFollow) {
			return
		}
	}
}

func (s *Store) follow(ctx context.Context, h *hook) error {
	r := s.record(h)
	from := events.Start{After: r.After}
	if r.After == "" {
		from.Since = r.Since
	}
	// Each webhook counts for itself among the followers.
	ctx = proto.WithCaller(ctx, proto.Caller{Owner: sealName(r.Webhook.ID)})
	f, err := s.cfg.Feed.Follow(ctx, events.Filter{Owner: r.Owner, Container: r.Webhook.ContainerID,
		Types: r.Webhook.Types}, from)
	if err != nil {
		return err
	}
	defer f.Close()
	key, err := s.cfg.Vault.Unseal(sealName(r.Webhook.ID), r.Sealed)
	if err != nil {
		return err
	}
	return f.Each(ctx, func(e proto.FeedEvent) error { return s.deliverEvent(ctx, h, key, e) })
}

// deliverEvent posts an event until the receiver takes it. It fails if ctx ends or the webhook is disabled.
func (s *Store) deliverEvent(ctx context.Context, h *hook, key []byte, e proto.FeedEvent) error {
	body, err := json.Marshal(proto.WebhookMessage{Type: e.Type, Timestamp: e.Timestamp, Data: e})
	if err != nil {
		return err
	}
	id := "msg_" + e.ID
	if e.ID == "" {
		id = proto.NewID("msg_")
	}
	for {
		if next := s.record(h).Webhook.NextAttempt; next != nil && !sleep(ctx, next.Sub(s.cfg.Now())) {
			return ctx.Err()
		}
		began := s.cfg.Now()
		to := s.record(h).Webhook
		spanCtx, sp := span.StartClient(ctx, "webhook")
		sp.String(span.WebhookID, to.ID)
		sp.String(span.EventType, string(e.Type))
		status, err := s.post(spanCtx, to.URL, key, id, body)
		sp.Int(span.HTTPStatus, int64(status))
		sp.End(err)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		log := proto.WebhookDelivery{MessageID: id, Type: e.Type, At: proto.At(began), Status: status,
			Seconds: s.cfg.Now().Sub(began).Seconds()}
		if err != nil {
			log.Error = describe(err)
		}
		if err := s.recordAttempt(h, e, log, err == nil, status == http.StatusGone); err != nil || log.Error == "" {
			return err
		}
	}
}

// recordAttempt writes down how an attempt went. The result is errStopped if the webhook is disabled now.
func (s *Store) recordAttempt(h *hook, e proto.FeedEvent, d proto.WebhookDelivery, ok, gone bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	disabled := ""
	err := s.saveLocked(h, s.cfg.Ledger.UpdateAsync, func(r *record) {
		w := &r.Webhook
		w.Deliveries = append(w.Deliveries, d)
		w.Deliveries = slices.Clone(w.Deliveries[max(0, len(w.Deliveries)-keptDeliveries):])
		if ok {
			r.Attempts, w.FailingSince, w.NextAttempt = 0, nil, nil
			if e.ID != "" {
				r.After = e.ID
			}
			return
		}
		now := s.cfg.Now()
		if w.FailingSince == nil {
			w.FailingSince = proto.AtOrNil(now)
		}
		w.NextAttempt = proto.AtOrNil(now.Add(s.cfg.Delays[min(r.Attempts, len(s.cfg.Delays)-1)]))
		r.Attempts++
		switch {
		case gone:
			disabled = "the receiver answered 410 Gone"
		case now.Sub(w.FailingSince.Time) >= s.cfg.GiveUp:
			disabled = "the receiver failed since " + w.FailingSince.Format(time.RFC3339) + ": " + d.Error
		}
		if disabled != "" {
			w.Enabled, w.DisabledReason, w.NextAttempt = false, disabled, nil
		}
	})
	if err != nil || disabled == "" {
		return err
	}
	h.stop()
	h.stop = nil
	s.cfg.Audit(proto.AuditEntry{Act: "webhook.disabled", Outcome: proto.AuditOK, Actor: proto.ActorDaemon,
		Owner: h.rec.Owner, Item: h.rec.Webhook.ID, Note: disabled})
	return errStopped
}

// maxAnswer bounds what is read of an answer, so that its connection can be used again, in bytes.
const maxAnswer = 64 << 10

// post sends one message. An error is any answer but a 2xx.
func (s *Store) post(ctx context.Context, to string, key []byte, id string, body []byte) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	span.ToHeader(ctx, req.Header)
	now := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "berth/"+proto.Version)
	req.Header.Set("webhook-id", id)
	req.Header.Set("webhook-timestamp", now)
	req.Header.Set("webhook-signature", "v1,"+sign(key, id, now, body))
	res, err := s.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, maxAnswer) // what it says does not matter
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return res.StatusCode, fmt.Errorf("the receiver answered %s", http.StatusText(res.StatusCode))
	}
	return res.StatusCode, nil
}

// sign returns the signature of a message as Standard Webhooks defines it.
func sign(key []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.", id, timestamp)
	mac.Write(body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// sleep waits, and reports whether the time passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(0, d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
