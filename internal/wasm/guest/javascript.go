package guest

import (
	"context"
	"errors"
)

func newJavaScript(ctx context.Context, cache string, module []byte) (engine, error) {
	return nil, errors.New("later")
}
