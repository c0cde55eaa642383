package trace

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
)

// send sends items until Close, then those that are queued.
func (t *Tracer) send() {
	defer close(t.done)
	for {
		select {
		case first := <-t.queue:
			t.deliver(t.collect(first))
		case <-t.closing:
			for {
				select {
				case first := <-t.queue:
					t.deliver(t.collect(first))
				default:
					return
				}
			}
		}
	}
}

// collect returns a batch that begins with an item: those of the next batchDelay, or of the time
// until the queue is half full, batchLen at most.
func (t *Tracer) collect(first item) []item {
	batch := append(make([]item, 0, batchLen), first)
	full := time.NewTimer(batchDelay)
	defer full.Stop()
	// It sleeps meanwhile: to wake for each item would cost the request that has added it.
	select {
	case <-t.filled:
	case <-full.C:
	case <-t.closing:
	}
	for len(batch) < batchLen {
		select {
		case i := <-t.queue:
			batch = append(batch, i)
		default:
			return batch
		}
	}
	return batch
}

// deliver sends a batch. It tries again for sendTimeout if the collector asks for that or is not
// there; then the batch is lost.
func (t *Tracer) deliver(batch []item) {
	message, spans := t.encode(batch)
	body, err := proto.Marshal(message)
	if err == nil {
		err = t.postUntil(body)
	}
	if err != nil {
		t.lost += int64(spans)
	}
	t.report(err)
}

// postUntil posts a message, also repeatedly.
func (t *Tracer) postUntil(body []byte) error {
	ctx, cancel := context.WithTimeout(t.hurry, sendTimeout)
	defer cancel()
	for pause := firstRetry; ; pause *= 2 {
		wait, err := t.post(ctx, body)
		if err == nil || wait < 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(max(pause, wait)):
		}
	}
}

// post posts a message once. wait is how long to wait before the next attempt at least; negative:
// another attempt is useless.
func (t *Tracer) post(ctx context.Context, body []byte) (wait time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.options.Endpoint, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	for name, values := range t.options.Headers {
		r.Header[name] = values
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	resp, err := t.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, keptForReply)) // so that the connection is used again
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return 0, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout: // OTLP: retryable
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return time.Duration(max(0, min(seconds, int(sendTimeout/time.Second)))) * time.Second, fmt.Errorf("the collector answered %s", resp.Status)
	}
	return -1, fmt.Errorf("the collector answered %s", resp.Status)
}

// report logs lost spans, in one line a minute at most.
func (t *Tracer) report(err error) {
	dropped := t.dropped.Load()
	if t.lost == 0 && dropped == 0 || time.Since(t.lastLog) < logInterval {
		return
	}
	t.dropped.Add(-dropped)
	t.options.Logger.Warn("traces are lost", "endpoint", t.options.Endpoint, "spans", t.lost, "not_queued", dropped, "error", err)
	t.lost, t.lastLog = 0, time.Now()
}
