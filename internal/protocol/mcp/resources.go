package mcp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbar-dev/sandbar"
)

// scheme is the scheme of the URIs of files: sandbar://SANDBOX/PATH.
const scheme = "sandbar"

// uriOf returns the URI of a file. name is absolute.
func uriOf(id sandbar.ID, name string) string {
	return (&url.URL{Scheme: scheme, Host: string(id), Path: name}).String()
}

func (s *Server) addResources() {
	s.sdk.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "file", Title: "File of a sandbox", URITemplate: scheme + "://{sandbox}/{+path}",
		Description: fmt.Sprintf("A file of a sandbox of this session, by its absolute path. At most %d MiB; download has larger files.", maxDownload>>20),
	}, s.readResource)
}

func (s *Server) readResource(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	x, ctx, end, err := s.begin(ctx, req.Session)
	if err != nil {
		return nil, protocolError(err)
	}
	defer end()
	contents, err := x.resource(ctx, req.Params.URI)
	if err != nil {
		return nil, protocolError(err)
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{contents}}, nil
}

func (x *session) resource(ctx context.Context, uri string) (*sdk.ResourceContents, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != scheme || u.Host == "" || !strings.HasPrefix(u.Path, "/") || u.RawQuery != "" || u.Fragment != "" {
		return nil, invalid("uri", sandbar.Quote(uri, 200)+" is no URI of a file", "use "+scheme+"://SANDBOX/PATH")
	}
	b, err := x.named(u.Host)
	if err != nil {
		return nil, err
	}
	data, info, err := part(ctx, b.FS(), u.Path, 0, maxDownload+1)
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxDownload:
		return nil, &sandbar.Error{Code: sandbar.TooLarge, Field: "uri", Message: fmt.Sprintf("the file has %d bytes; at most %d are allowed", info.Size, maxDownload),
			Fix: "call the tool download with an offset"}
	}
	c := &sdk.ResourceContents{URI: uri, MIMEType: http.DetectContentType(data)}
	if utf8.Valid(data) && !strings.Contains(string(data), "\x00") {
		c.Text = string(data)
	} else {
		c.Blob = data
	}
	return c, nil
}
