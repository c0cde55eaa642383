package trace

import (
	"cmp"
	"time"

	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	otlp "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// encode returns the message of a batch and the number of its spans. TracesData has the encoding of
// the body of a request (opentelemetry-proto, ExportTraceServiceRequest).
func (t *Tracer) encode(batch []item) (*otlp.TracesData, int) {
	var spans []*otlp.Span
	for _, i := range batch {
		if i.request != nil {
			spans = append(spans, i.request.span())
		} else {
			spans = appendCall(spans, i.call)
		}
	}
	return &otlp.TracesData{ResourceSpans: []*otlp.ResourceSpans{{
		Resource:   &resource.Resource{Attributes: []*common.KeyValue{text("service.name", "sandbar"), text("service.version", t.options.Version)}},
		ScopeSpans: []*otlp.ScopeSpans{{Scope: &common.InstrumentationScope{Name: "sandbar", Version: t.options.Version}, Spans: spans}},
	}}}, len(spans)
}

func (r *request) span() *otlp.Span {
	trace, id, _, _ := parse(r.client.Trace)
	s := &otlp.Span{TraceId: trace[:], SpanId: id[:], Flags: 1, Name: r.name, Kind: otlp.Span_SPAN_KIND_SERVER,
		StartTimeUnixNano: nano(r.begin), EndTimeUnixNano: nano(r.end),
		Attributes: append(caller(r.client), text("sandbar.outcome", r.outcome)), Status: status(r.failed, r.outcome)}
	if r.parent != (spanID{}) {
		s.ParentSpanId = r.parent[:]
	}
	return s
}

// appendCall appends the spans of a call.
func appendCall(spans []*otlp.Span, x engine.Trace) []*otlp.Span {
	trace, parent, _, ok := parse(x.Client.Trace)
	if !ok {
		return spans
	}
	call := step(trace, parent, x.Call)
	call.Attributes = append(caller(x.Client), text("sandbar.outcome", x.Outcome))
	for name, v := range map[string]string{"sandbar.sandbox.id": string(x.Sandbox), "sandbar.driver": x.Driver, "sandbar.language": x.Language,
		"sandbar.sandbox.origin": string(x.Origin)} {
		if v != "" {
			call.Attributes = append(call.Attributes, text(name, v))
		}
	}
	call.Status = status(x.Failed, x.Outcome)
	return appendSteps(append(spans, call), trace, call, x.Call.Steps)
}

// appendSteps appends the spans of the steps of a span, and of theirs.
func appendSteps(spans []*otlp.Span, trace traceID, parent *otlp.Span, steps []engine.Step) []*otlp.Span {
	for _, part := range steps {
		s := step(trace, spanID(parent.SpanId), part)
		spans = appendSteps(append(spans, s), trace, s, part.Steps)
	}
	return spans
}

func step(trace traceID, parent spanID, s engine.Step) *otlp.Span {
	id := newSpanID()
	return &otlp.Span{TraceId: trace[:], SpanId: id[:], ParentSpanId: parent[:], Flags: 1, Name: s.Name, Kind: otlp.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: nano(s.Begin), EndTimeUnixNano: nano(s.End)}
}

// caller returns the attributes of a client.
func caller(c sandbar.Client) []*common.KeyValue {
	return []*common.KeyValue{text("sandbar.client", c.Name), text("sandbar.tenant", cmp.Or(c.Tenant, sandbar.DefaultTenant)), text("sandbar.request.id", c.Request)}
}

func text(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}

func status(failed bool, code string) *otlp.Status {
	if !failed {
		return nil
	}
	return &otlp.Status{Code: otlp.Status_STATUS_CODE_ERROR, Message: code}
}

func nano(t time.Time) uint64 { return uint64(t.UnixNano()) }
