console.log(Intl.DateTimeFormat().resolvedOptions().locale, (1234567.891).toLocaleString(), new Date(0).toLocaleString('de-DE', { timeZone: 'Asia/Tokyo' }));
console.log(Intl.DateTimeFormat().resolvedOptions().timeZone, new Date(0).toString(), 'ä'.localeCompare('z'));
