require('./not-there');
