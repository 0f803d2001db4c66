package acme

import (
	"context"
	"crypto/x509"
	"errors"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/mholt/acmez/v3/acme"
)

// Times of renewals. A certificate is renewed when a third of its lifetime is left, or earlier if its authority says so
// (RFC 9773). All daemons of a site would renew at the same time without the jitter.
const (
	leftAtRenewal = 3  // one part in 3 of the lifetime
	jitter        = 20 // at most one part in 20 of the lifetime earlier
	lookEvery     = 6 * time.Hour
	leastLook     = 100 * time.Millisecond
)

// Times between tries that fail. An authority counts failures: Let's Encrypt refuses a name after five in an hour.
var pauses = []time.Duration{time.Minute, 5 * time.Minute, 20 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour}

// A daemon that starts again tries at once what its operator may have mended, but not more often than this. It keeps
// to the pause if the authority has refused for the number of requests.
const leastPause = time.Minute

// limitedPause is the least time to the next try after the authority said that there are too many.
const limitedPause = time.Hour

// run gets the certificate and renews it until ctx ends.
func (m *Manager) run(ctx context.Context) {
	m.forgetPause()
	for ctx.Err() == nil {
		cert := m.current()
		at := m.next(ctx, cert)
		// The clock can jump, and a machine can sleep, so no wait is longer than lookEvery.
		if d := min(time.Until(at), lookEvery); d > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(max(d, leastLook)):
			}
			continue
		}
		m.begin()
		err := m.obtain(ctx, cert)
		if err == nil || ctx.Err() == nil { // the end of the daemon is no failure
			m.note(err)
		}
	}
}

// forgetPause shortens the pause after a failure of the daemon before. A try that it did not end is followed by the
// pause of a failure, so that a daemon that is started over and over does not order each time.
func (m *Manager) forgetPause() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if soon := m.state.Tried.Add(leastPause); !m.state.Limited && m.state.Next.After(soon) {
		m.state.Next = soon
	}
	if n := m.state.Unended; n > 0 {
		pause := max(leastPause, pauses[min(n, len(pauses))-1])
		m.state.Next = later(m.state.Next, m.state.Tried.Add(pause))
	}
}

// begin records that a try begins.
func (m *Manager) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Tried = time.Now()
	m.state.Unended++
	m.keepState()
}

// keepState writes the state. The caller holds mu.
func (m *Manager) keepState() {
	if err := m.state.write(m.cfg.Dir); err != nil {
		m.cfg.Log.Error("the state of the certificate cannot be written", "error", err)
	}
}

// current returns the certificate on disk if it is for these names and of this authority, or nil.
func (m *Manager) current() *x509.Certificate {
	cert, err := readCert(CertFile(m.cfg.Dir))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			m.cfg.Log.Error("the certificate cannot be read; the daemon gets another", "error", err)
		}
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state.Authority != m.cfg.Authority || m.covers(cert) != nil {
		return nil
	}
	return cert
}

// covers returns an error if a certificate lacks one of our names.
func (m *Manager) covers(cert *x509.Certificate) error {
	for _, name := range m.names() {
		if err := cert.VerifyHostname(name); err != nil {
			return err
		}
	}
	return nil
}

// next returns when a certificate is to be got.
func (m *Manager) next(ctx context.Context, cert *x509.Certificate) time.Time {
	pause, tried := m.pause()
	if cert == nil {
		return pause
	}
	lifetime := cert.NotAfter.Sub(cert.NotBefore)
	// Neither an authority that asks for renewals all the time, nor one whose certificates are old when they come, may
	// make us ask without an end.
	least := tried.Add(min(time.Hour, lifetime/leftAtRenewal))
	at := cert.NotAfter.Add(-lifetime/leftAtRenewal - early(cert, lifetime/jitter))
	if asked, ok := m.askedRenewal(ctx, cert); ok && asked.Before(at) {
		at = asked
	}
	return later(later(at, least), pause)
}

// pause returns the time before which nothing is to be tried, and when something was tried. Times that are in the
// future, since the clock was set back, do not count.
func (m *Manager) pause() (next, tried time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.state.Tried.Before(now) {
		return m.state.Next, m.state.Tried
	}
	return time.Time{}, time.Time{}
}

// early returns a part of most that is the same at each look at a certificate.
func early(cert *x509.Certificate, most time.Duration) time.Duration {
	var seed [32]byte
	copy(seed[:], cert.SerialNumber.Bytes())
	return time.Duration(rand.New(rand.NewChaCha8(seed)).Int64N(max(1, int64(most))))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// askedRenewal returns when the authority wants a certificate to be renewed. An authority that cannot be asked, or that
// has no such answer, does not disturb.
func (m *Manager) askedRenewal(ctx context.Context, cert *x509.Certificate) (time.Time, bool) {
	if time.Until(cert.NotAfter) < 0 {
		return time.Time{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	info, err := m.client.GetRenewalInfo(ctx, cert)
	if err != nil || !info.HasWindow() {
		return time.Time{}, false
	}
	return info.SelectedTime, true
}

// note records how a try went.
func (m *Manager) note(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if err == nil {
		m.state = state{Authority: m.cfg.Authority, Tried: now}
	} else {
		pause := pauses[min(m.state.Failures, len(pauses)-1)]
		m.state.Limited = isProblem(err, acme.ProblemTypeRateLimited)
		if m.state.Limited {
			pause = max(pause, limitedPause)
		}
		pause += rand.N(pause / 10)
		m.state.Tried, m.state.Next, m.state.Error = now, now.Add(pause), err.Error()
		m.state.Failures++
		m.state.Unended = 0
	}
	m.keepState()
	if err != nil {
		m.cfg.Log.Error("no certificate from the ACME authority", "error", err, "do", advice(err, m.setter != nil),
			"failures", m.state.Failures, "next", m.state.Next.Truncate(time.Second))
	}
}
