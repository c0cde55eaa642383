console.log('umlauts äöü 日本語 🎉', 'ä'.length);
